/*
 * What a cell says in words: the tooltip, the live region and the table twin all read it here.
 */

import { spanWords } from "../state/clock";
import { RANK_STATE } from "../state/words";
import type { GridColumns } from "../types";
import { LAYER_WORD, type Layer, valueWords } from "./layers";
import { hasRacks } from "./layout";

export interface CellWords {
  rank: number;
  state: string;
  stateWord: string;
  place: string;
  coordinates: string;
  note: string;
  seen: string;
  /** What the layer that colours the grid says; "" without one. */
  value: string;
}

export function cellWords(columns: GridColumns, i: number, layer: Layer | null = null): CellWords {
  const state = columns.states[columns.state[i]] ?? "unknown";
  const ago = columns.last_seen_ms_ago[i];
  return {
    rank: columns.rank[i],
    state,
    stateWord: columns.state_words?.[state] ?? RANK_STATE[state]?.word ?? state,
    place: [rackOf(columns, i), nodeOf(columns, i), gpuOf(columns, i)].filter(Boolean).join(", "),
    coordinates: coordinatesOf(columns, i),
    note: columns.note[i] ?? "",
    seen: seenWords(columns, ago),
    value: layer ? valueWords(layer, columns.rank[i]) : "",
  };
}

function seenWords({ is_past }: GridColumns, ago: number | null | undefined): string {
  if (ago === undefined) return "";
  if (is_past) return ago === null ? "not seen in the half minute before" : `last seen ${spanWords(ago)} before`;
  return ago === null ? "never seen" : `last seen ${spanWords(ago)} ago`;
}

/** One sentence for the live region. */
export function cellSentence(columns: GridColumns, i: number, layer: Layer | null = null): string {
  const words = cellWords(columns, i, layer);
  const value = layer ? `${LAYER_WORD[layer.by]} ${words.value}` : "";
  return [`Rank ${words.rank}`, words.place, value, words.stateWord, words.note, words.seen].filter(Boolean).join(", ");
}

export function nodeOf(columns: GridColumns, i: number): string {
  return columns.nodes[columns.node[i]] ?? "node unknown";
}

/** Where no node declares its rack nothing is said of racks. */
function rackOf(columns: GridColumns, i: number): string {
  if (!hasRacks(columns)) return "";
  const rack = columns.racks?.[columns.node[i]];
  return rack ? `rack ${rack}` : "rack unknown";
}

function gpuOf(columns: GridColumns, i: number): string {
  return columns.gpu?.[i] ? `GPU ${columns.gpu[i]}` : "";
}

function coordinatesOf(columns: GridColumns, i: number): string {
  const axes: [string, number[]][] = [
    ["TP", columns.tp],
    ["PP", columns.pp],
    ["DP", columns.dp],
    ["EP", columns.ep],
  ];
  return axes
    .filter(([, values]) => values[i] !== null && values[i] >= 0)
    .map(([name, values]) => `${name} ${values[i]}`)
    .join(" · ");
}

export function countsByState(columns: GridColumns): { state: string; n: number }[] {
  const counts = columns.states.map((state) => ({ state, n: 0 }));
  for (const code of columns.state) if (counts[code]) counts[code].n += 1;
  return counts;
}

/** The node of a rank by name; "" where it is not known. */
export function nodeNames(columns: GridColumns | null): (rank: number) => string {
  const names = new Map(columns?.rank.map((rank, i) => [rank, columns.nodes[columns.node[i]] ?? ""]));
  return (rank) => names.get(rank) ?? "";
}
