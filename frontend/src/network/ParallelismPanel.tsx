/*
 * A job's parallelism as its ops show it: what each kind costs an iteration, the microbatches of a pipeline, the layout of
 * its communicators, and where names or launcher say something else.
 */

import { ask } from "../api";
import { Loading } from "../parts/bits";
import { Failure } from "../parts/Failure";
import { Figure } from "../parts/Figure";
import { type Column, Table } from "../parts/Table";
import { useAnswer } from "../parts/useAnswer";
import { selectedRank } from "../state/address";
import type { PlotlyFigure } from "../types";

interface Kind {
  parallelism: string;
  ms: number | null;
  actual_ms: number | null;
  n_ops: number;
  mb: number;
}

interface Group {
  comm_id: string;
  name: string;
  n_ranks: number;
  ranks: number[];
  parallelism: string;
  evidence: string[];
  disagreement: string;
}

interface Parallelism {
  rank: number;
  iteration_ms: number | null;
  bubble: { at_least: number | null; at_most: number | null; reason: string; n_told: number; n: number };
  communication: Kind[];
  layout: Group[];
  omitted: number;
  says: string;
  doubts: string[];
  microbatches: PlotlyFigure | null;
  read_of: string;
}

export function ParallelismPanel({ jobId, beat }: { jobId: number; beat: string | number }) {
  const rank = selectedRank();
  const asked = `jobs/${jobId}/parallelism${rank === null ? "" : `?rank=${rank}`}`;
  const { value, failure, again } = useAnswer(asked, () => ask<Parallelism>(asked), beat);
  if (failure && !value) return <Failure error={failure} again={again} />;
  if (!value) return <Loading what="the parallelism" />;
  return (
    <section class="parallelism" aria-labelledby="parallelism">
      <h3 id="parallelism">An iteration, by kind of parallelism</h3>
      <p>{value.says}</p>
      {value.read_of && (
        <p class="faint">
          Read of {value.read_of}: those of the groups of rank {value.rank}.
        </p>
      )}
      {value.doubts.length > 0 && (
        <ul class="network-doubts">
          {value.doubts.map((doubt) => (
            <li key={doubt} class="warning">
              {doubt}
            </li>
          ))}
        </ul>
      )}
      {value.communication.length > 0 && (
        <Table
          label="Communication of an iteration, by kind"
          isCards
          columns={KINDS}
          rows={value.communication}
          rowKey={(row) => row.parallelism}
        />
      )}
      {value.microbatches && <Figure figure={value.microbatches} label="Microbatches of an iteration, by stage" />}
      {value.layout.length > 0 && (
        <details>
          <summary>
            Layout: {value.layout.length + value.omitted} communicators with ops
            {value.omitted > 0 && `, the ${value.layout.length} largest shown`}
          </summary>
          <Table label="Communicators" isCards columns={GROUPS} rows={value.layout} rowKey={(row) => row.comm_id} />
        </details>
      )}
    </section>
  );
}

const WORDS: Record<string, string> = {
  DP: "data (DP)",
  TP: "tensor (TP)",
  PP: "pipeline (PP)",
  EP: "expert (EP)",
  None: "none: small, such as a loss",
  unknown: "unknown",
};

const time = (ms: number | null) => (ms === null ? "not measured" : `${ms.toFixed(ms < 10 ? 2 : 1)} ms`);

const KINDS: Column<Kind>[] = [
  { word: "Parallelism", cell: (row) => WORDS[row.parallelism] ?? row.parallelism },
  { word: "In ops", isNumber: true, cell: (row) => <b>{time(row.ms)}</b> },
  { word: "Bytes moved", isNumber: true, cell: (row) => time(row.actual_ms) },
  { word: "Ops of a rank", isNumber: true, cell: (row) => row.n_ops.toFixed(row.n_ops % 1 ? 1 : 0) },
  { word: "Data of a rank", isNumber: true, cell: (row) => `${row.mb.toLocaleString("en")} MB` },
];

const GROUPS: Column<Group>[] = [
  { word: "Communicator", cell: (row) => <span title={row.comm_id}>{row.name || row.comm_id}</span> },
  { word: "Serves", cell: (row) => WORDS[row.parallelism] ?? row.parallelism },
  { word: "Name and launcher say", cell: (row) => row.evidence.join(" or ") || "nothing" },
  { word: "Ranks", isNumber: true, cell: (row) => row.n_ranks.toLocaleString("en") },
  { word: "Which", cell: (row) => shortened(row.ranks, row.n_ranks) },
];

function shortened(ranks: number[], of: number): string {
  const shown = ranks.slice(0, 8).join(", ");
  return of > 8 ? `${shown}, …` : shown;
}
