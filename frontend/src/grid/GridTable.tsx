/* The grid as a table: worst states first, a page of rows at a time. Also what one copies from, and the phone's view. */

import { useMemo, useState } from "preact/hooks";
import { ScrollBox } from "../parts/ScrollBox";
import type { GridColumns } from "../types";
import { cellWords } from "./words";

const WORST_FIRST = ["culprit", "dead", "silent", "unknown", "waiting", "not_visible", "ok"];
const PAGE_ROWS = 100;

interface GridTableProps {
  columns: GridColumns;
  selected: number | null;
  onSelect: (rank: number | null) => void;
}

export function worstFirst(columns: GridColumns): number[] {
  const weight = columns.states.map((state) => WORST_FIRST.indexOf(state));
  return columns.rank
    .map((_, i) => i)
    .sort((a, b) => weight[columns.state[a]] - weight[columns.state[b]] || columns.rank[a] - columns.rank[b]);
}

export function GridTable({ columns, selected, onSelect }: GridTableProps) {
  const order = useMemo(() => worstFirst(columns), [columns]);
  const [shown, setShown] = useState(PAGE_ROWS);
  return (
    <ScrollBox class="table-box" label="Ranks">
      <table>
        <thead>
          <tr>
            <th scope="col">Rank</th>
            <th scope="col">State</th>
            <th scope="col">Node, GPU</th>
            <th scope="col">NIC</th>
            <th scope="col">Place</th>
            <th scope="col">What is known</th>
            <th scope="col">Last seen</th>
          </tr>
        </thead>
        <tbody>
          {order.slice(0, shown).map((i) => (
            <Line
              key={columns.rank[i]}
              columns={columns}
              i={i}
              chosen={columns.rank[i] === selected}
              onSelect={onSelect}
            />
          ))}
        </tbody>
      </table>
      {shown < order.length && (
        <button type="button" class="more" onClick={() => setShown(shown + PAGE_ROWS)}>
          {order.length - shown} more ranks
        </button>
      )}
    </ScrollBox>
  );
}

interface LineProps {
  columns: GridColumns;
  i: number;
  chosen: boolean;
  onSelect: (rank: number | null) => void;
}

function Line({ columns, i, chosen, onSelect }: LineProps) {
  const words = cellWords(columns, i);
  return (
    <tr class={chosen ? "chosen" : ""}>
      <th scope="row">
        <button
          type="button"
          class="link"
          aria-pressed={chosen}
          onClick={() => onSelect(chosen ? null : words.rank)}
          title="Select in the grid and the lanes"
        >
          {words.rank}
        </button>
      </th>
      <td>
        <i class={`swatch swatch-${words.state}`} aria-hidden="true" /> {words.stateWord}
      </td>
      <td>{words.place}</td>
      <td>{columns.nic[i]}</td>
      <td>{words.coordinates}</td>
      <td>{words.note}</td>
      <td class="faint">{words.seen.replace("last seen ", "")}</td>
    </tr>
  );
}
