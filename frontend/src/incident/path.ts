/*
 * The waiting path as columns of ranks: culprits first, then who waits for them, then who waits for those. Ranks that
 * wait alike are one box, so that thousands of victims stay a picture of a few boxes. Pure.
 */

import { rankRanges } from "../state/words";
import type { WaitEdge } from "../types";

export interface PathBox {
  id: number;
  layer: number;
  ranks: number[];
  /** Boxes it waits for. */
  waitsFor: number[];
  why: string;
  comm: string;
  op: number;
}

const LAYERS_MAX = 5;

/** Boxes by layer; layer 0 holds the culprits. Ranks that no edge leads to a culprit from are left out. */
export function pathBoxes(
  culprits: readonly number[],
  edges: readonly WaitEdge[],
  comms: Record<string, string>,
): PathBox[] {
  const layer = layersOf(culprits, edges);
  const waitsOf = groupedBy(edges, "waiter");
  const boxes: PathBox[] = [];
  const boxOf = new Map<number, number>();
  for (let depth = 0; depth < LAYERS_MAX; depth++) {
    const here = new Map<string, PathBox>();
    for (const [rank, at] of layer) {
      if (at !== depth) continue;
      const edge = waitsOf.get(rank)?.find((one) => layer.get(one.waits_for) === depth - 1);
      const alike =
        depth === 0 ? `culprit ${rank}` : `${edge && boxOf.get(edge.waits_for)} ${edge?.why} ${edge?.comm_id}`;
      let box = here.get(alike);
      if (!box) {
        box = newBox(boxes.length, depth, edge, boxOf, comms);
        here.set(alike, box);
        boxes.push(box);
      }
      box.ranks.push(rank);
    }
    for (const box of here.values()) for (const rank of box.ranks) boxOf.set(rank, box.id);
  }
  return boxes;
}

function newBox(
  id: number,
  layer: number,
  edge: WaitEdge | undefined,
  boxOf: Map<number, number>,
  comms: Record<string, string>,
): PathBox {
  const target = edge && layer > 0 ? boxOf.get(edge.waits_for) : undefined;
  return {
    id,
    layer,
    ranks: [],
    waitsFor: target === undefined ? [] : [target],
    why: layer > 0 ? (edge?.why ?? "") : "",
    comm: edge && layer > 0 ? commName(comms, edge.comm_id) : "",
    op: edge?.op ?? 0,
  };
}

/** Map.groupBy, which Node 20 does not have. */
function groupedBy(edges: readonly WaitEdge[], end: "waiter" | "waits_for"): Map<number, WaitEdge[]> {
  const groups = new Map<number, WaitEdge[]>();
  for (const edge of edges) {
    const group = groups.get(edge[end]);
    if (group) group.push(edge);
    else groups.set(edge[end], [edge]);
  }
  return groups;
}

function layersOf(culprits: readonly number[], edges: readonly WaitEdge[]): Map<number, number> {
  const waiters = groupedBy(edges, "waits_for");
  const layer = new Map(culprits.map((rank) => [rank, 0]));
  const queue = [...culprits];
  for (const rank of queue) {
    for (const { waiter } of waiters.get(rank) ?? []) {
      if (layer.has(waiter)) continue;
      layer.set(waiter, (layer.get(rank) ?? 0) + 1);
      queue.push(waiter);
    }
  }
  return layer;
}

/** Names are keyed by decimal or hexadecimal id; ids beyond 2^53 reach us rounded, and are compared rounded. */
export function commName(comms: Record<string, string>, id: number | string): string {
  if (String(id) in comms) return comms[String(id)];
  const wanted = Number(id);
  const key = Object.keys(comms).find((one) => Number(one) === wanted || Number(`0x${one}`) === wanted);
  return key ? comms[key] : "";
}

/** The path in sentences, nearest to the culprit first. */
export function pathSentences(boxes: readonly PathBox[]): string[] {
  return boxes
    .filter((box) => box.layer > 0)
    .map((box) => {
      const target = boxes[box.waitsFor[0]];
      const who = `${box.ranks.length === 1 ? "Rank" : "Ranks"} ${rankRanges(box.ranks)}`;
      const where = [box.comm, box.op ? `op ${box.op}` : ""].filter(Boolean).join(" ");
      const forWhom = target ? rankRanges(target.ranks) : "?";
      return `${who} ${box.ranks.length === 1 ? "waits" : "wait"} for ${forWhom}${where ? ` in ${where}` : ""}${box.why ? `: ${box.why}` : ""}.`;
    });
}
