/* The grid of stacks as a table: those who stand out first, a page of rows at a time. */

import { useMemo, useState } from "preact/hooks";
import { cellWords } from "../grid/words";
import { type Column, Table } from "../parts/Table";
import type { GridColumns } from "../types";
import { currentCall, type Marked } from "./classes";
import { PlaceWord } from "./places";

const PAGE_ROWS = 100;

interface StacksTableProps {
  marked: readonly Marked[];
  cells: GridColumns;
  looks: number;
  selected: number | null;
  onSelect: (rank: number | null) => void;
}

interface Row {
  cell: number;
  of: Marked | null;
}

export function StacksTable({ marked, cells, looks, selected, onSelect }: StacksTableProps) {
  const [shown, setShown] = useState(PAGE_ROWS);
  const rows = useMemo(() => rowsOf(cells, marked), [cells, marked]);
  return (
    <Table
      label="Stacks by rank"
      isCards
      columns={columnsOf(cells, looks, selected, onSelect)}
      rows={rows.slice(0, shown)}
      rowKey={({ cell }) => cell}
      line={({ cell }) => (cells.rank[cell] === selected ? { class: "chosen" } : {})}
    >
      {shown < rows.length && (
        <button type="button" class="more" onClick={() => setShown(shown + PAGE_ROWS)}>
          {rows.length - shown} more ranks
        </button>
      )}
    </Table>
  );
}

/** In the order of the classes; ranks nothing was read of first, as nobody can say they are well. */
function rowsOf(cells: GridColumns, marked: readonly Marked[]): Row[] {
  const classOf = new Map<number, number>();
  marked.forEach(({ group }, n) => {
    for (const rank of group.ranks) if (!classOf.has(rank)) classOf.set(rank, n);
  });
  return cells.rank
    .map((rank, cell) => ({ cell, n: classOf.get(rank) ?? -1 }))
    .sort((a, b) => a.n - b.n || cells.rank[a.cell] - cells.rank[b.cell])
    .map(({ cell, n }) => ({ cell, of: marked[n] ?? null }));
}

const columnsOf = (
  cells: GridColumns,
  looks: number,
  selected: number | null,
  onSelect: (rank: number | null) => void,
): Column<Row>[] => [
  {
    word: "Rank",
    cell: ({ cell }) => {
      const rank = cells.rank[cell];
      return (
        <button
          type="button"
          class="link"
          aria-pressed={rank === selected}
          onClick={() => onSelect(rank === selected ? null : rank)}
          title="Show its stacks"
        >
          {rank}
        </button>
      );
    },
  },
  { word: "Node", cell: ({ cell }) => cellWords(cells, cell).place },
  { word: "Place", cell: ({ cell }) => cellWords(cells, cell).coordinates },
  {
    word: "Doing",
    cell: ({ of }) =>
      of ? (
        <>
          <i class={`swatch swatch-${of.mark}`} aria-hidden="true" /> <PlaceWord place={of.group.place} />
        </>
      ) : (
        <>
          <i class="swatch swatch-unknown" aria-hidden="true" /> Unknown
        </>
      ),
  },
  { word: "Call", cell: ({ of }) => of && <code>{currentCall(of.group)}</code> },
  { word: "What is known", cell: ({ cell }) => cells.note[cell] },
  ...(looks < 2 ? [] : [{ word: "Moves", cell: ({ of }: Row) => movesWord(of) }]),
];

/** Of a class in which some move and some do not, nobody can say which this rank is. */
function movesWord(of: Marked | null): string {
  if (!of || of.group.frozen + of.group.moving === 0) return "–";
  if (of.group.moving === 0) return "no";
  return of.group.frozen === 0 ? "yes" : "some do";
}
