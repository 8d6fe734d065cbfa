/*
 * The newest looks of the trigger and what each saw, so that "nothing" is seen to have been looked for. Looks in a row
 * that saw nothing are one line.
 */

import { useState } from "preact/hooks";
import { spanWords } from "../state/clock";
import { numberWords, SYMPTOM, worded } from "../state/words";
import type { Look } from "../types";
import { Ago } from "./bits";
import { ScrollBox } from "./ScrollBox";

export interface Run {
  newest: Look;
  n: number;
  oldestAt: string;
}

/** Consecutive looks (newest first) that saw no symptom and say the same, folded; a symptom always stands alone. */
export function foldLooks(looks: Look[]): Run[] {
  const runs: Run[] = [];
  for (const look of looks) {
    const last = runs.at(-1);
    if (last && !look.kind && !last.newest.kind && last.newest.saw === look.saw) {
      last.n += 1;
      last.oldestAt = look.at;
    } else runs.push({ newest: look, n: 1, oldestAt: look.at });
  }
  return runs;
}

const SHOWN_AT_FIRST = 10;

export function LooksTable({ looks }: { looks: Look[] }) {
  const [all, setAll] = useState(false);
  if (looks.length === 0) return <p class="faint">Nobody has looked at this job yet.</p>;
  const runs = foldLooks(looks);
  return (
    <ScrollBox class="table-box" label="Looks">
      <table>
        <caption class="visually-hidden">Newest looks of the trigger</caption>
        <thead>
          <tr>
            <th scope="col">When</th>
            <th scope="col">Trigger</th>
            <th scope="col">What it saw</th>
            <th scope="col" class="wide-only">
              Thresholds in force
            </th>
          </tr>
        </thead>
        <tbody>
          {runs.slice(0, all ? runs.length : SHOWN_AT_FIRST).map((run) => (
            <Line key={`${run.newest.at} ${run.newest.kind}`} run={run} />
          ))}
        </tbody>
      </table>
      {!all && runs.length > SHOWN_AT_FIRST && (
        <button type="button" class="more" onClick={() => setAll(true)}>
          {runs.length - SHOWN_AT_FIRST} more
        </button>
      )}
    </ScrollBox>
  );
}

function Line({ run: { newest, n, oldestAt } }: { run: Run }) {
  return (
    <tr>
      <td class="nowrap">
        <Ago at={newest.at} />
      </td>
      <td>{newest.kind && worded(SYMPTOM, newest.kind)}</td>
      <td>
        <span class={newest.kind ? "" : "faint"}>{newest.saw}</span>
        {n > 1 && (
          <span class="faint">
            {" "}
            Said by {n} looks over {spanWords(Date.parse(newest.at) - Date.parse(oldestAt))}.
          </span>
        )}
      </td>
      <td class="faint wide-only">
        {Object.entries(newest.thresholds ?? {})
          .map(([name, value]) => numberWords(name, value).join(" "))
          .join(", ")}
      </td>
    </tr>
  );
}
