/*
 * Where the time of the slow op goes, component by component, and the job's own usual against now: two bars and two
 * numbers for each. The table is the text; the bars repeat it.
 */

import { type Column, Table } from "../parts/Table";
import type { Compared } from "../types";
import { type BarRow, barRows, quantity } from "./compare";

const COLUMNS: Column<BarRow>[] = [
  { word: "What", cell: (row) => row.what },
  {
    word: "Usual and now",
    class: () => "bars-cell",
    cell: (row) => (
      <div class={`bars ${row.isWorst ? "worst" : ""}`} aria-hidden="true">
        <i class="bar-usual" style={{ width: percent(row.usualShare) }} />
        <i class="bar-now" style={{ width: percent(row.nowShare) }} />
      </div>
    ),
  },
  { word: "Usual", isNumber: true, class: () => "faint", cell: (row) => quantity(row.usual, row.unit) },
  { word: "Now", isNumber: true, cell: (row) => <b>{quantity(row.now, row.unit)}</b> },
  { word: "Change", isNumber: true, class: (row) => (row.isWorst ? "old" : ""), cell: (row) => row.change },
];

function percent(share: number): string {
  return `${(share * 100).toFixed(1)}%`;
}

interface ComparedPanelProps {
  id: string;
  title: string;
  hint: string;
  rows: readonly Compared[];
  /** Mark what grew most: only where the rows are parts of one whole. */
  marksWorst?: boolean;
}

export function ComparedPanel({ id, title, hint, rows, marksWorst = false }: ComparedPanelProps) {
  if (rows.length === 0) return null;
  return (
    <section class="panel compared" aria-labelledby={id}>
      <div class="panel-head">
        <h2 id={id}>{title}</h2>
        <span class="faint">{hint}</span>
      </div>
      <Table
        label={title}
        isCards
        columns={COLUMNS}
        rows={barRows(rows, marksWorst)}
        rowKey={(row, n) => `${row.what} ${n}`}
      />
      <p class="bars-legend faint" aria-hidden="true">
        <i class="bar-usual" /> usual <i class="bar-now" /> now
      </p>
    </section>
  );
}
