/*
 * One rank in full: every process it has, the raw text of both looks, and its calls against what most do or against
 * another rank.
 */

import { useState } from "preact/hooks";
import { ApiError } from "../api";
import { Loading } from "../parts/bits";
import { useAnswer } from "../parts/useAnswer";
import { query, setQuery } from "../state/address";
import { timeOfDay, zoneLabel } from "../state/clock";
import type { DiffLine, RankProcess } from "./shapes";
import { readRankStacks, type Source } from "./source";

interface RankStacksProps {
  source: Source;
  request: number | null;
  rank: number;
  onSelect: (rank: number | null) => void;
}

export function RankStacks({ source, request, rank, onSelect }: RankStacksProps) {
  const raw = query.value.get("against");
  const against = raw !== null && /^\d+$/.test(raw) && Number(raw) !== rank ? Number(raw) : null;
  const about = `${source} ${request} ${rank} ${against}`;
  const { value, failure } = useAnswer(about, () => readRankStacks(source, rank, request, against));
  return (
    <section class="panel rank-stacks" aria-labelledby="rank-stacks">
      <div class="panel-head">
        <h2 id="rank-stacks">Stacks of rank {rank}</h2>
        <Against key={`${rank} ${against}`} against={against} />
        <div class="panel-tools">
          <button type="button" onClick={() => onSelect(null)}>
            Close
          </button>
        </div>
      </div>
      {failure && !value && <p class="warning">{missingWords(failure)}</p>}
      {!failure && !value && <Loading what={`stacks of rank ${rank}`} />}
      {value && value.processes.length === 0 && <p>No process of this rank was seen.</p>}
      {value?.processes.map((process) => (
        <ProcessStacks key={process.pid} process={process} against={against} />
      ))}
    </section>
  );
}

/** A bundle's files are gone once they are read. */
function missingWords(failure: Error): string {
  const isGone = failure instanceof ApiError && failure.status === 404;
  return isGone ? "The raw text of this rank is not kept here; its class above has its calls." : failure.message;
}

function Against({ against }: { against: number | null }) {
  const [typed, setTyped] = useState(against === null ? "" : String(against));
  const compare = (submit: Event) => {
    submit.preventDefault();
    setQuery({ against: /^\d+$/.test(typed.trim()) ? typed.trim() : null });
  };
  return (
    <form class="ask-rank" onSubmit={compare}>
      <label for="against-rank">against rank</label>
      <input
        id="against-rank"
        inputMode="numeric"
        placeholder="most"
        value={typed}
        onInput={(input) => setTyped((input.target as HTMLInputElement).value)}
      />
      <button type="submit" class="small">
        Compare
      </button>
    </form>
  );
}

const KIND_WORD: Record<string, string> = {
  trainer: "Trainer",
  loader: "Data-loader worker",
  checkpoint: "Checkpoint writer",
  other: "Process",
};

function ProcessStacks({ process, against }: { process: RankProcess; against: number | null }) {
  return (
    <article class="process">
      <h3>
        {KIND_WORD[process.kind] ?? process.kind} <span class="faint">pid {process.pid}</span>{" "}
        <code class="faint">{process.command}</code>
      </h3>
      {process.silent && <p class="doubts">Unknown: {process.silent}</p>}
      {process.against_majority.length > 0 && (
        <Difference lines={process.against_majority} of={against === null ? "what most ranks do" : `rank ${against}`} />
      )}
      {process.looks.map((look, n) => (
        <details key={n} open={process.against_majority.length === 0 && n === 0}>
          <summary>
            Raw text{process.looks.length > 1 ? `, look ${n + 1}` : ""}, {timeOfDay(Date.parse(look.taken_at))}{" "}
            {zoneLabel()}
          </summary>
          {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a scrolling box must be reachable by keyboard */}
          <pre tabIndex={0}>{look.text}</pre>
        </details>
      ))}
    </article>
  );
}

const SIGN_WORD = { "+": "only here: ", "-": "only there: ", " ": "" };

function Difference({ lines, of }: { lines: readonly DiffLine[]; of: string }) {
  const isSame = lines.every(({ op }) => op === " ");
  return (
    <details open>
      <summary>{isSame ? `The same as ${of}` : `Against ${of}`}</summary>
      <ol class="difference">
        {lines.map(({ op, line }, n) => (
          <li key={n} class={op === "+" ? "only-here" : op === "-" ? "only-there" : ""}>
            <span aria-hidden="true">{op}</span>
            <span class="visually-hidden">{SIGN_WORD[op]}</span>
            <code>{line}</code>
          </li>
        ))}
      </ol>
    </details>
  );
}
