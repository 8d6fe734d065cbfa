/*
 * The newest looks of the trigger and what each saw, so that "nothing" is seen to have been looked for. Looks in a row
 * that saw the same are one line.
 */

import { useState } from "preact/hooks";
import { spanWords } from "../state/clock";
import { numberWords, SYMPTOM, worded } from "../state/words";
import type { Look } from "../types";
import { Ago } from "./bits";
import { type Column, Table } from "./Table";

export interface Run {
  newest: Look;
  n: number;
  oldestAt: string;
}

/** Consecutive looks (newest first) of one kind whose sentences differ in numbers only, folded into the newest. */
export function foldLooks(looks: Look[]): Run[] {
  const runs: Run[] = [];
  for (const look of looks) {
    const last = runs.at(-1);
    if (last && last.newest.kind === look.kind && gist(last.newest.saw) === gist(look.saw)) {
      last.n += 1;
      last.oldestAt = look.at;
    } else runs.push({ newest: look, n: 1, oldestAt: look.at });
  }
  return runs;
}

function gist(sentence: string): string {
  return sentence.replaceAll(/[\d.,]+/g, "#");
}

const SHOWN_AT_FIRST = 10;

const COLUMNS: Column<Run>[] = [
  { word: "When", class: () => "nowrap", cell: ({ newest }) => <Ago at={newest.at} /> },
  { word: "Trigger", cell: ({ newest }) => newest.kind && worded(SYMPTOM, newest.kind) },
  {
    word: "What it saw",
    cell: ({ newest, n, oldestAt }) => (
      <>
        <span class={newest.kind ? "" : "faint"}>{newest.saw}</span>
        {n > 1 && (
          <span class="faint">
            {" "}
            So said {n} looks in a row, the first {spanWords(Date.parse(newest.at) - Date.parse(oldestAt))} before this
            one, each with its own numbers.
          </span>
        )}
      </>
    ),
  },
  {
    word: "Thresholds in force",
    isWideOnly: true,
    class: () => "faint",
    cell: ({ newest }) =>
      Object.entries(newest.thresholds ?? {})
        .map(([name, value]) => numberWords(name, value).join(" "))
        .join(", "),
  },
];

export function LooksTable({ looks }: { looks: Look[] }) {
  const [all, setAll] = useState(false);
  if (looks.length === 0) return <p class="faint">Nobody has looked at this job yet.</p>;
  const runs = foldLooks(looks);
  return (
    <Table
      label="Looks"
      columns={COLUMNS}
      rows={runs.slice(0, all ? runs.length : SHOWN_AT_FIRST)}
      rowKey={({ newest }) => `${newest.at} ${newest.kind}`}
    >
      {!all && runs.length > SHOWN_AT_FIRST && (
        <button type="button" class="more" onClick={() => setAll(true)}>
          {runs.length - SHOWN_AT_FIRST} more
        </button>
      )}
    </Table>
  );
}
