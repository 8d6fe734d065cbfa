/* The grid as a table: worst states first, a page of rows at a time. Also what one copies from, and the phone's view. */

import { useMemo, useState } from "preact/hooks";
import { type Column, Table } from "../parts/Table";
import type { GridColumns } from "../types";
import { LAYER_WORD, type Layer, tellingFirst } from "./layers";
import { type CellWords, cellWords } from "./words";

const WORST_FIRST = ["culprit", "suspect", "dead", "silent", "unknown", "waiting", "not_visible", "ok"];
const PAGE_ROWS = 100;

interface GridTableProps {
  columns: GridColumns;
  selected: number | null;
  onSelect: (rank: number | null) => void;
  layer?: Layer | null;
}

export function worstFirst(columns: GridColumns): number[] {
  const weight = columns.states.map((state) => WORST_FIRST.indexOf(state));
  return columns.rank
    .map((_, i) => i)
    .sort((a, b) => weight[columns.state[a]] - weight[columns.state[b]] || columns.rank[a] - columns.rank[b]);
}

/** By what the layer says, those in front that tell most; of equal ones the worst state. */
export function tellingOrder(columns: GridColumns, layer: Layer): number[] {
  const weight = tellingFirst(layer);
  const by = (i: number) => weight(columns.rank[i]);
  return worstFirst(columns).sort((a, b) => by(a) - by(b));
}

interface Row {
  words: CellWords;
  nic: string;
}

const columnsOf = (
  selected: number | null,
  onSelect: GridTableProps["onSelect"],
  layer: Layer | null,
): Column<Row>[] => [
  {
    word: "Rank",
    cell: ({ words: { rank } }) => (
      <button
        type="button"
        class="link"
        aria-pressed={rank === selected}
        onClick={() => onSelect(rank === selected ? null : rank)}
        title="Select in the grid and the lanes"
      >
        {rank}
      </button>
    ),
  },
  {
    word: "State",
    cell: ({ words }) => (
      <>
        <i class={`swatch swatch-${words.state}`} aria-hidden="true" /> {words.stateWord}
      </>
    ),
  },
  ...(layer ? [{ word: LAYER_WORD[layer.by], cell: ({ words }: Row) => words.value }] : []),
  { word: "Where it runs", cell: ({ words }) => words.place },
  { word: "NIC", cell: ({ nic }) => nic },
  { word: "Place", cell: ({ words }) => words.coordinates },
  { word: "What is known", cell: ({ words }) => words.note },
  { word: "Last seen", class: () => "faint", cell: ({ words }) => words.seen.replace("last seen ", "") },
];

export function GridTable({ columns, selected, onSelect, layer = null }: GridTableProps) {
  const order = useMemo(() => (layer ? tellingOrder(columns, layer) : worstFirst(columns)), [columns, layer]);
  const [shown, setShown] = useState(PAGE_ROWS);
  const rows = order.slice(0, shown).map((i) => ({ words: cellWords(columns, i, layer), nic: columns.nic[i] }));
  return (
    <Table
      label="Ranks"
      columns={columnsOf(selected, onSelect, layer)}
      rows={rows}
      rowKey={({ words }) => words.rank}
      line={({ words }) => (words.rank === selected ? { class: "chosen" } : {})}
    >
      {shown < order.length && (
        <button type="button" class="more" onClick={() => setShown(shown + PAGE_ROWS)}>
          {order.length - shown} more ranks
        </button>
      )}
    </Table>
  );
}
