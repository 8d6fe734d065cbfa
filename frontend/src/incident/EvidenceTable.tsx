/* Measurements with values, units and sources; the counters of a flow's two ends stand side by side. */

import { type Column, Table } from "../parts/Table";
import type { Evidence } from "../types";
import { type EndReading, type FlowCounters, flowCounters } from "./reading";

interface Read {
  row: Evidence;
  flow: FlowCounters | null;
}

const COLUMNS: Column<Read>[] = [
  { word: "What was measured", cell: ({ row, flow }) => (flow ? flow.flow : row.what) },
  {
    word: "Value",
    isNumber: true,
    cell: ({ row, flow }) => (flow ? <EndCounters flow={flow} /> : <Value row={row} />),
  },
  { word: "Rank", isNumber: true, cell: ({ row }) => row.rank ?? "–" },
  { word: "Source", cell: ({ row }) => <code>{row.source || "–"}</code> },
];

export function EvidenceTable({ rows, caption }: { rows: readonly Evidence[]; caption: string }) {
  const read = rows.map((row) => ({ row, flow: flowCounters(row) }));
  return <Table label="Evidence" caption={caption} isCards columns={COLUMNS} rows={read} rowKey={(_, n) => n} />;
}

/** More than this is a text to read, as a stack is, not a number to compare. */
const TEXT_FROM = 24;

/** A counter that only rises: alone it says nothing of how fast. */
function isTotal(what: string, unit: string | undefined): boolean {
  return unit === "bytes" && /\b[rt]x_bytes$/.test(what);
}

function Value({ row: { what, value, unit } }: { row: Evidence }) {
  if (typeof value === "string" && value.length > TEXT_FROM) return <span class="evidence-text">{value}</span>;
  return (
    <>
      {typeof value === "number" ? value.toLocaleString("en-US", { maximumFractionDigits: 3 }) : value}
      {unit && <span class="faint"> {unit}</span>}
      {isTotal(what, unit) && (
        <span class="faint" title="The NIC's own counter, as it was read last.">
          {" "}
          in all
        </span>
      )}
    </>
  );
}

function Counters({ end }: { end: EndReading }) {
  return (
    <dl>
      {end.counters.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

function EndCounters({ flow }: { flow: FlowCounters }) {
  return (
    <div class="ends">
      {flow.ends.map((end) => (
        <div key={end.who}>
          <p class="faint">{end.who}</p>
          {end.unseen ? <p>{end.unseen}</p> : <Counters end={end} />}
        </div>
      ))}
      <p class="faint">of {flow.total} chunks</p>
    </div>
  );
}
