/* A job over time: how long its steps take, how much of that is communication, how fast each kind of op is, what was lost. */

import { Loading } from "../parts/bits";
import { Failure } from "../parts/Failure";
import { Figure } from "../parts/Figure";
import { type Column, Table } from "../parts/Table";
import { useAnswer } from "../parts/useAnswer";
import { query, setQuery } from "../state/address";
import { count, lossWords } from "../state/words";
import type { PlotlyFigure } from "../types";
import { type Losses, type NodeLoss, nodeHref, readJobFigures } from "./calls";
import "./fleet.css";

const SPANS: readonly (readonly [number, string])[] = [
  [30, "30 min"],
  [360, "6 h"],
  [1440, "1 day"],
  [10_080, "7 days"],
];

export function OverTime({ id, beat }: { id: number; beat: string | number }) {
  const asked = Number(query.value.get("span"));
  const minutes = SPANS.some(([span]) => span === asked) ? asked : 30;
  const { value, failure, again } = useAnswer(`figures ${id} ${minutes}`, () => readJobFigures(id, minutes), beat);
  return (
    <section class="panel" aria-labelledby="over-time">
      <div class="panel-head">
        <h2 id="over-time">Over time</h2>
        <fieldset class="segmented">
          <legend class="visually-hidden">Time shown</legend>
          {SPANS.map(([span, word]) => (
            <button
              key={span}
              type="button"
              aria-pressed={span === minutes}
              onClick={() => setQuery({ span: span === 30 ? null : String(span) })}
            >
              {word}
            </button>
          ))}
        </fieldset>
        <a href={`/questions?job=${id}`}>Ask about its ops …</a>
      </div>
      {failure && !value && <Failure error={failure} again={again} />}
      {!value && !failure && <Loading what="the charts" />}
      {value && (
        <div class="over-time">
          <Titled title="Length of a step" figure={value.steps} />
          <Titled title="Communication" figure={value.communication} />
          <Titled title="Bus bandwidth by kind of op" figure={value.bandwidth} />
          <Lost losses={value.losses} />
        </div>
      )}
    </section>
  );
}

function Titled({ title, figure }: { title: string; figure: PlotlyFigure }) {
  return (
    <div>
      <h3>{title}</h3>
      {figure.data.length > 0 ? <Figure figure={figure} label={title} /> : <p class="faint">{figure.text}</p>}
    </div>
  );
}

const COLUMNS: Column<NodeLoss>[] = [
  { word: "Node", cell: (row) => <a href={nodeHref(row.node)}>{row.node}</a> },
  { word: "Lost on the node", cell: (row) => lossList(row.kinds).join(", ") || "–" },
  { word: "Rows left out", isNumber: true, cell: (row) => row.rows_dropped.toLocaleString("en-US") },
  { word: "Refused", isNumber: true, cell: (row) => row.batches_refused.toLocaleString("en-US") },
  { word: "Displaced", isNumber: true, cell: (row) => row.strays.toLocaleString("en-US") },
];

const lossList = (kinds: Record<string, number>) => Object.entries(kinds).map(([kind, n]) => lossWords(kind, n));

function Lost({ losses }: { losses: Losses }) {
  const batches = count(losses.n_batches, "batch", "batches");
  return (
    <div>
      <h3>Trace loss</h3>
      {losses.n_nodes_losing === 0 ? (
        <p>
          Nothing of {batches} from {count(losses.n_nodes, "node")} is known to be lost since this attempt began.
        </p>
      ) : (
        <p class="warning">
          {losses.n_nodes_losing} of {count(losses.n_nodes, "node")} lost data since this attempt began; {batches}{" "}
          arrived.
        </p>
      )}
      {losses.nodes.length > 0 && (
        <Table label="Losses by node" isCards columns={COLUMNS} rows={losses.nodes} rowKey={(row) => row.node} />
      )}
      {losses.left_out > 0 && <p class="faint">{count(losses.left_out, "node")} with losses more.</p>}
    </div>
  );
}
