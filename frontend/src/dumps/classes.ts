/*
 * Stacks as a reader takes them in: per kind of process, the few that stand out first, the many last; which class each
 * rank is in, and the tree of calls with its unbranched stretches folded. Pure, so ten thousand ranks can be tried.
 */

import type { GridColumns } from "../types";
import type { CommandKind, RankPlace, StackGroup, StacksAnswer, TreeNode } from "./shapes";

export const KINDS: readonly CommandKind[] = ["trainer", "loader", "checkpoint", "other"];
/** Classes with a colour and hatch of their own; the others share the last. */
export const MARKS = 6;
export const NODE_NOT_TOLD = "node not told";
const SAME = "same";
const UNKNOWN = "unknown";

/** A class of identical stacks and how it is marked: "same" for the many, "class-1" … for those who stand out. */
export interface Marked {
  group: StackGroup;
  mark: string;
}

/** Those who stand out first: who does something of its own, the smallest class first; within a size by rank. */
export function markedGroups(stacks: StacksAnswer, kind: CommandKind): Marked[] {
  const groups = stacks.groups.filter((group) => group.kind === kind);
  const isMost = (group: StackGroup) => group.is_dominant && !hasEqual(groups, group);
  const odd = groups.filter((group) => !isMost(group)).sort(tellingFirst);
  const same = groups.filter(isMost);
  return [
    ...odd.map((group, n) => ({ group, mark: `class-${Math.min(n + 1, MARKS)}` })),
    ...same.map((group) => ({ group, mark: SAME })),
  ];
}

/** Of two classes of one size nobody can say which is what most do. */
function hasEqual(groups: readonly StackGroup[], group: StackGroup): boolean {
  return groups.some((other) => other !== group && other.count === group.count);
}

/** Who only waits for others stands out least: in a barrier when the rest is in a collective. */
function tellingFirst(a: StackGroup, b: StackGroup): number {
  const waits = Number(a.is_wait ?? false) - Number(b.is_wait ?? false);
  return waits || a.count - b.count || (a.ranks[0] ?? 0) - (b.ranks[0] ?? 0);
}

/** Threads beside the main one, the fewest ranks first. */
export function otherThreads(stacks: StacksAnswer, kind: CommandKind): Marked[] {
  const groups = (stacks.other_threads ?? []).filter((group) => group.kind === kind);
  return groups.sort((a, b) => a.count - b.count).map((group) => ({ group, mark: SAME }));
}

export function kindsOf(stacks: StacksAnswer): CommandKind[] {
  return KINDS.filter((kind) => kind === "trainer" || stacks.groups.some((group) => group.kind === kind));
}

/**
 * The ranks of one kind of process as cells. Trainers: every rank there is, unknown where nothing was read. Other kinds:
 * the ranks that have such a process. A rank with several is drawn as the rarest of them.
 */
export function cellsOf(stacks: StacksAnswer, kind: CommandKind, marked: readonly Marked[]): GridColumns {
  const of = new Map<number, Marked>();
  for (const one of marked) for (const rank of one.group.ranks) if (!of.has(rank)) of.set(rank, one);
  const why = new Map(stacks.silent.map((silent) => [silent.rank, silent]));
  const places = placesOf(stacks, kind, of);
  const nodes = [...new Set(places.map((place) => place.node))];
  const nodeAt = new Map(nodes.map((node, n) => [node, n]));
  const states = [...new Set([...marked.map((one) => one.mark), SAME, UNKNOWN])];
  const codeOf = new Map(states.map((state, n) => [state, n]));
  const stateOf = (rank: number) => of.get(rank)?.mark ?? UNKNOWN;
  return {
    at: stacks.taken_at ?? "",
    nodes,
    states,
    rank: places.map((place) => place.rank),
    node: places.map((place) => nodeAt.get(place.node) ?? -1),
    local_rank: places.map((place) => place.rank),
    tp: places.map((place) => place.tp ?? -1),
    pp: places.map((place) => place.pp ?? -1),
    dp: places.map((place) => place.dp ?? -1),
    ep: places.map((place) => place.ep ?? -1),
    state: places.map((place) => codeOf.get(stateOf(place.rank)) ?? 0),
    note: places.map(({ rank }) => of.get(rank)?.group.said ?? why.get(rank)?.why ?? "nothing was read"),
    nic: [],
    gpu: [],
    pid: [],
    last_seen_ms_ago: [],
    inferred: false,
    world_size: places.length,
    state_words: wordsOf(marked),
  };
}

function placesOf(stacks: StacksAnswer, kind: CommandKind, of: Map<number, Marked>): RankPlace[] {
  const known = stacks.order.places.filter((place) => kind === "trainer" || of.has(place.rank));
  const placed = new Set(known.map((place) => place.rank));
  const silent = kind === "trainer" ? stacks.silent.filter(({ rank }) => rank >= 0) : [];
  const nodes = new Map(silent.map(({ rank, node }) => [rank, node]));
  const others = [...new Set([...of.keys(), ...silent.map(({ rank }) => rank)])].filter((rank) => !placed.has(rank));
  const unplaced = others
    .sort((a, b) => a - b)
    .map((rank) => ({ rank, node: nodes.get(rank) || NODE_NOT_TOLD, tp: null, pp: null, dp: null, ep: null }));
  return [...known, ...unplaced];
}

function wordsOf(marked: readonly Marked[]): Record<string, string> {
  const words: Record<string, string> = { [UNKNOWN]: "Unknown", [SAME]: "As most" };
  for (const { group, mark } of marked) {
    if (mark !== SAME) words[mark] = words[mark] && words[mark] !== group.place ? "Others" : group.place;
  }
  return words;
}

/** The call a block shows: the one that tells the place, as the server says it, else the innermost. */
export function currentCall(group: StackGroup): string {
  const telling = /: (\S+) \(/.exec(group.said)?.[1];
  return telling ?? group.frames[0]?.function ?? group.place;
}

/** Frozen or moving, of ranks that were looked at twice; "" when nobody can say. */
export function paceWords(group: StackGroup, looks: number): string {
  if (looks < 2 || group.frozen + group.moving === 0) return "";
  if (group.moving === 0) return "does not move";
  if (group.frozen === 0) return "moves";
  return `${group.frozen.toLocaleString("en-US")} do not move, ${group.moving.toLocaleString("en-US")} move`;
}

/** A stretch of calls without a branch, and what follows it. */
export interface Stretch {
  names: string[];
  count: number;
  children: TreeNode[];
}

export function stretchOf(node: TreeNode): Stretch {
  const names = [node.name];
  let end = node;
  while (end.children.length === 1 && end.children[0].count === end.count) {
    end = end.children[0];
    names.push(end.name);
  }
  return {
    names: names.filter(Boolean),
    count: node.count,
    children: [...end.children].sort((a, b) => a.count - b.count),
  };
}

/** How many stretches lie below, the node's own among them. */
export function stretchesBelow(node: TreeNode): number {
  return stretchOf(node).children.reduce((n, child) => n + stretchesBelow(child), 1);
}
