/* One block per rank with its current call, by node or by place: for jobs small enough to read. Larger ones are a canvas. */

import { useMemo } from "preact/hooks";
import { groupsInOrder, type Order } from "../grid/layout";
import { cellWords } from "../grid/words";
import { pointAt, pointedRanks } from "../state/pointed";
import type { GridColumns } from "../types";
import { currentCall, type Marked, NODE_NOT_TOLD } from "./classes";

export const BLOCKS_MAX = 128;

interface RankBlocksProps {
  cells: GridColumns;
  marked: readonly Marked[];
  order: Order;
  selected: number | null;
  onSelect: (rank: number | null) => void;
}

export function RankBlocks({ cells, marked, order, selected, onSelect }: RankBlocksProps) {
  const groups = useMemo(() => groupsInOrder(cells, order), [cells, order]);
  const callOf = useMemo(() => callsOf(marked), [marked]);
  const pointed = pointedRanks.value;
  return (
    <div class="rank-blocks">
      {groups.map((group) => (
        <div key={group.label}>
          {(groups.length > 1 || group.label !== NODE_NOT_TOLD) && <h3>{group.label}</h3>}
          <div>
            {group.members.map((cell) => {
              const words = cellWords(cells, cell);
              return (
                <button
                  key={words.rank}
                  type="button"
                  class={`rank-block block-${words.state} ${pointed.has(words.rank) ? "pointed" : ""}`}
                  aria-pressed={words.rank === selected}
                  title={words.note}
                  onClick={() => onSelect(words.rank === selected ? null : words.rank)}
                  onPointerEnter={() => pointAt([words.rank])}
                  onPointerLeave={() => pointAt([])}
                >
                  <b>{words.rank}</b>
                  <span>
                    {words.state === "same" ? "" : <span class="visually-hidden">{words.stateWord}: </span>}
                    {callOf.get(words.rank) ?? "unknown"}
                  </span>
                </button>
              );
            })}
          </div>
        </div>
      ))}
    </div>
  );
}

/** Rank → its call; of several processes the one that stands out most. */
function callsOf(marked: readonly Marked[]): Map<number, string> {
  const found = new Map<number, string>();
  for (const { group } of marked)
    for (const rank of group.ranks) if (!found.has(rank)) found.set(rank, currentCall(group));
  return found;
}
