/*
 * The waiting path as a small graph: culprits first, then who waits for them, then who waits for those. Ranks that wait
 * alike are one box and no layer has more than a few boxes, so that ten thousand victims stay a picture. Pure.
 */

import { count, rankRanges } from "../state/words";
import type { WaitEdge } from "../types";

export interface PathBox {
  id: number;
  layer: number;
  ranks: number[];
  /** Boxes it waits for; of culprits that wait for each other, the others of the circle. */
  waitsFor: number[];
  /** Communicators and ops in which they wait: "dp_6" or "63 dp communicators"; "op 12" or "ops 3–9". */
  comm: string;
  ops: string;
  why: string;
}

export interface PathGraph {
  boxes: PathBox[];
  /** Victims that no listed edge leads from, or too many of them, to a culprit. */
  unlisted: number;
}

interface Step {
  rank: number;
  edge: WaitEdge | undefined;
}

const LAYERS_MAX = 5;
const PER_LAYER_MAX = 5;
const CULPRIT_BOXES_MAX = 6;

type Names = Record<string, string>;
type NodeOf = (rank: number) => string;

/** The boxes by layer, those of the culprits first. `nodeOf`: "" where it is not known. */
export function pathGraph(
  culprits: readonly number[],
  edges: readonly WaitEdge[],
  names: Names,
  victims: readonly number[] = [],
  nodeOf: NodeOf = () => "",
): PathGraph {
  const layers = layersOf(culprits, edges);
  const boxes = culpritBoxes(culprits, edges, names, nodeOf);
  const boxOf = new Map(boxes.flatMap((box) => box.ranks.map((rank) => [rank, box.id] as const)));
  for (const steps of layers.slice(1)) {
    const made = gathered(steps, boxOf, names).map((group, n) => victimBox(boxes.length + n, group, boxOf, names));
    for (const box of made) {
      box.layer = 1 + Math.max(...box.waitsFor.map((id) => boxes[id].layer));
      for (const rank of box.ranks) boxOf.set(rank, box.id);
    }
    boxes.push(...made);
  }
  return { boxes, unlisted: victims.filter((rank) => !boxOf.has(rank)).length };
}

/** Ranks by their distance to the culprits, each with the edge that leads there; those too far out are left out. */
function layersOf(culprits: readonly number[], edges: readonly WaitEdge[]): Step[][] {
  const waiters = groupedBy(edges, (edge) => edge.waits_for);
  const seen = new Set(culprits);
  const layers: Step[][] = [culprits.map((rank) => ({ rank, edge: undefined }))];
  while (layers.length < LAYERS_MAX) {
    const next: Step[] = [];
    for (const edge of layers[layers.length - 1].flatMap(({ rank }) => waiters.get(rank) ?? [])) {
      if (seen.has(edge.waiter)) continue;
      seen.add(edge.waiter);
      next.push({ rank: edge.waiter, edge });
    }
    if (next.length === 0) break;
    layers.push(next);
  }
  return layers;
}

/** Layers of the path, the culprits' own included. */
export function pathDepth(culprits: readonly number[], edges: readonly WaitEdge[]): number {
  return layersOf(culprits, edges).length;
}

/** A box per node; culprits that wait for each other are a circle, in which every one counts. */
function culpritBoxes(
  culprits: readonly number[],
  edges: readonly WaitEdge[],
  names: Names,
  nodeOf: NodeOf,
): PathBox[] {
  const blamed = new Set(culprits);
  const circle = edges.filter((edge) => blamed.has(edge.waiter) && blamed.has(edge.waits_for));
  let groups = [...groupedBy(culprits, (rank) => (circle.length > 0 ? String(rank) : nodeOf(rank))).values()];
  if (groups.length > CULPRIT_BOXES_MAX) groups = [[...culprits]];
  const boxOf = new Map(groups.flatMap((ranks, id) => ranks.map((rank) => [rank, id] as const)));
  return groups.map((ranks, id) => {
    const own = circle.filter((edge) => boxOf.get(edge.waiter) === id && boxOf.get(edge.waits_for) !== id);
    return { id, layer: 0, ranks, ...wording(own, names), waitsFor: targets(own, boxOf) };
  });
}

/** Who waits alike: for the same box in the same communicator; coarser where that would be too many boxes. */
function gathered(steps: Step[], boxOf: Map<number, number>, names: Names): Step[][] {
  const target = ({ edge }: Step) => (edge ? boxOf.get(edge.waits_for) : undefined);
  const comm = ({ edge }: Step) => (edge ? commName(names, edge.comm_id) || String(edge.comm_id) : "");
  const family = (step: Step) => familyOf(comm(step));
  for (const alike of [
    (step: Step) => `${target(step)} ${comm(step)}`,
    (step: Step) => `${target(step)} ${family(step)}`,
    family,
  ]) {
    const groups = [...groupedBy(steps, alike).values()];
    if (groups.length <= PER_LAYER_MAX) return groups;
  }
  const bySize = [...groupedBy(steps, family).values()].sort((a, b) => b.length - a.length);
  return [...bySize.slice(0, PER_LAYER_MAX - 1), bySize.slice(PER_LAYER_MAX - 1).flat()];
}

function victimBox(id: number, steps: Step[], boxOf: Map<number, number>, names: Names): PathBox {
  const edges = steps.flatMap(({ edge }) => edge ?? []);
  return {
    id,
    layer: 1,
    ranks: steps.map(({ rank }) => rank),
    ...wording(edges, names),
    waitsFor: targets(edges, boxOf),
  };
}

function targets(edges: readonly WaitEdge[], boxOf: Map<number, number>): number[] {
  return [...new Set(edges.flatMap((edge) => boxOf.get(edge.waits_for) ?? []))];
}

function wording(edges: readonly WaitEdge[], names: Names): Pick<PathBox, "comm" | "ops" | "why"> {
  return {
    comm: commWords([...new Set(edges.map((edge) => commName(names, edge.comm_id)))].filter(Boolean)),
    ops: opWords(edges.map((edge) => edge.op).filter((op) => op > 0)),
    why: commonWhy(edges),
  };
}

function commWords(comms: string[]): string {
  if (comms.length <= 1) return comms[0] ?? "";
  const families = new Set(comms.map(familyOf));
  return families.size === 1 ? `${comms.length} × ${[...families][0]}` : `${comms.length} communicators`;
}

function opWords(ops: number[]): string {
  if (ops.length === 0) return "";
  const [least, most] = ops.reduce(([low, high], op) => [Math.min(low, op), Math.max(high, op)], [ops[0], ops[0]]);
  return least === most ? `op ${least}` : `ops ${least}–${most}`;
}

/** The reason all of them give, whichever rank it names; "" when they differ. */
function commonWhy(edges: readonly WaitEdge[]): string {
  const whys = new Set(edges.map((edge) => edge.why));
  if (whys.size <= 1) return [...whys][0] ?? "";
  const unnamed = new Set([...whys].map((why) => why.replace(/\brank \d+/, "that rank")));
  return unnamed.size === 1 ? [...unnamed][0] : "";
}

/** "dp" of "dp_6" and "dp-6"; names without a number are a family of their own. */
function familyOf(name: string): string {
  return name.replace(/[\W_]*\d.*$/, "") || name;
}

/** Map.groupBy, which Node 20 does not have. */
function groupedBy<T, K>(all: readonly T[], key: (one: T) => K): Map<K, T[]> {
  const groups = new Map<K, T[]>();
  for (const one of all) {
    const group = groups.get(key(one));
    if (group) group.push(one);
    else groups.set(key(one), [one]);
  }
  return groups;
}

/** Names are keyed by decimal or hexadecimal id; ids beyond 2^53 reach us rounded, and are compared rounded. */
export function commName(comms: Names, id: number | string): string {
  if (String(id) in comms) return comms[String(id)];
  const wanted = Number(id);
  const key = Object.keys(comms).find((one) => Number(one) === wanted || Number(`0x${one}`) === wanted);
  return key ? comms[key] : "";
}

/** The path in sentences: who waits for a culprit and how many are not listed, then who waits farther out. */
export function pathSentences({ boxes, unlisted }: PathGraph): { near: string[]; far: string[] } {
  const said = (isNear: boolean) =>
    boxes.filter((box) => box.waitsFor.length > 0 && box.layer < 2 === isNear).map((box) => sentence(box, boxes));
  const near = said(true);
  if (unlisted > 0) {
    const who = `${count(unlisted, "more rank")} ${unlisted === 1 ? "waits" : "wait"}`;
    near.push(`${who} behind these; the path lists the nearest only.`);
  }
  return { near, far: said(false) };
}

function sentence(box: PathBox, boxes: readonly PathBox[]): string {
  const who = `${rankWords(box.ranks, "Rank")} ${box.ranks.length === 1 ? "waits" : "wait"}`;
  const forWhom = rankRanges(
    box.waitsFor.flatMap((id) => boxes[id].ranks),
    8,
  );
  const where = [box.comm, box.ops].filter(Boolean).join(" ");
  return `${who} for ${forWhom}${where ? ` in ${where}` : ""}${box.why ? `: ${box.why}` : ""}.`;
}

/** "rank 3", "ranks 0–7"; of very many only how many. */
export function rankWords(ranks: readonly number[], word = "rank", pieces = 8): string {
  return `${word}${ranks.length === 1 ? "" : "s"} ${rankRanges(ranks, pieces)}`;
}
