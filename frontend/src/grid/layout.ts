/*
 * Where every rank's cell goes. Ranks of a node (or of a rack, or of a TP group) stay together: few groups become labelled
 * boxes, many become vertical strips that wrap into bands, so 10,000 ranks fit one screen. Pure, so the canvas, the keyboard
 * and the tests agree on the place of a cell.
 */

import type { GridColumns } from "../types";
import type { View } from "./zoom";

export type Order = "node" | "rack" | "parallel";

export interface GridLayout {
  width: number;
  height: number;
  size: number;
  gap: number;
  /** Cells touch and lie on a raster of `size`, so they can be drawn as pixels of one small image. */
  dense: boolean;
  /** Left and top of each cell, in the order of the columns; NaN-free. */
  x: Float32Array;
  y: Float32Array;
  labels: { text: string; x: number; y: number; width: number }[];
  /** Of what is in sight of a larger grid: that grid as it was laid out, and which part. */
  of?: { layout: GridLayout; view: View };
}

/** Cells of a node, of a rack, or of a TP group. */
export interface Group {
  label: string;
  members: number[];
}

/** Gaps between cells cost a path per cell; above this many the cells touch. */
export const GAPS_MAX = 16_384;
const BOXES_MAX = 48;
const BOX_CELLS_MAX = 512;
const LABEL_PX = 20;
const HEIGHT_AIM_PX = 420;
const STRIP_ROWS_MAX = 16;
const STRIP_SIZES = [16, 14, 12, 10, 9, 8, 7, 6, 5, 4, 3, 2];

export function layoutGrid(columns: GridColumns, order: Order, width: number): GridLayout {
  const groups = groupsInOrder(columns, order);
  const boxes = groups.length <= BOXES_MAX && columns.rank.length <= BOX_CELLS_MAX;
  return boxes ? layoutBoxes(groups, columns.rank.length, width) : layoutStrips(groups, columns.rank.length, width);
}

/** An order that says nothing of this job is that by node. */
export function groupsInOrder(columns: GridColumns, order: Order): Group[] {
  if (order === "rack" && hasRacks(columns)) return byRack(columns);
  return order === "parallel" ? byPlace(columns) : byNode(columns);
}

/** Whether the job has more than one place in TP × PP × DP × EP; else that order would say nothing. */
export function hasPlaces(columns: GridColumns): boolean {
  return [columns.tp, columns.pp, columns.dp, columns.ep].some((axis) => axis.some((value) => value > 0));
}

export function hasExperts(columns: GridColumns): boolean {
  return columns.ep.some((value) => value > 0);
}

/** Whether any node declares its rack. */
export function hasRacks(columns: GridColumns): boolean {
  return columns.racks?.some((rack) => rack !== "") ?? false;
}

function byNode(columns: GridColumns): Group[] {
  return grouped(
    columns,
    (i) => columns.node[i] ?? -1,
    (i) => columns.nodes[columns.node[i]] ?? "node unknown",
    (i) => columns.local_rank[i] ?? 0,
  );
}

/** Racks as people count them (r2 before r10), in them node after node. */
function byRack(columns: GridColumns): Group[] {
  const racks = columns.racks ?? [];
  const names = [...new Set(racks.filter(Boolean))].sort(NATURAL.compare);
  const placeOf = new Map(names.map((name, place) => [name, place]));
  const placeOfNode = racks.map((rack) => placeOf.get(rack) ?? -1);
  const perNode = 1 + largest(columns.local_rank);
  return grouped(
    columns,
    (i) => placeOfNode[columns.node[i]] ?? -1,
    (i) => racks[columns.node[i]] || "rack unknown",
    (i) => (columns.node[i] ?? -1) * perNode + (columns.local_rank[i] ?? 0),
  );
}

const NATURAL = new Intl.Collator("en", { numeric: true });

function byPlace(columns: GridColumns): Group[] {
  const { pp, dp, ep } = columns;
  const [dps, eps] = [2 + largest(dp), 2 + largest(ep)];
  const isKnown = (i: number) => pp[i] >= 0 || dp[i] >= 0 || ep[i] >= 0;
  const withExperts = hasExperts(columns);
  const said = (axis: string, value: number) => `${axis} ${value >= 0 ? value : "?"}`;
  return grouped(
    columns,
    (i) => (isKnown(i) ? ((pp[i] + 1) * dps + dp[i] + 1) * eps + ep[i] + 1 : -1),
    (i) => {
      if (!isKnown(i)) return "place unknown";
      const axes = [said("PP", pp[i]), said("DP", dp[i])];
      return (withExperts ? [...axes, said("EP", ep[i])] : axes).join(" · ");
    },
    (i) => columns.tp[i] ?? 0,
  );
}

function largest(values: number[]): number {
  return values.reduce((most, value) => Math.max(most, value), 0);
}

type Of<T> = (i: number) => T;

function grouped(columns: GridColumns, key: Of<number>, label: Of<string>, place: Of<number>): Group[] {
  const found = new Map<number, Group>();
  for (let i = 0; i < columns.rank.length; i++) {
    const group = found.get(key(i));
    if (group) group.members.push(i);
    else found.set(key(i), { label: label(i), members: [i] });
  }
  for (const group of found.values()) {
    group.members.sort((a, b) => place(a) - place(b) || columns.rank[a] - columns.rank[b]);
  }
  // Groups without a place (key < 0) go last.
  const order = (k: number) => (k < 0 ? Number.MAX_SAFE_INTEGER : k);
  return [...found.entries()].sort(([a], [b]) => order(a) - order(b)).map(([, group]) => group);
}

function layoutBoxes(groups: Group[], n: number, width: number): GridLayout {
  const widest = Math.max(1, ...groups.map((group) => Math.min(group.members.length, STRIP_ROWS_MAX)));
  const size = boxCell(groups.length, widest, width);
  const gap = 4;
  const boxWidth = Math.max(widest * (size + gap), 96) + 20;
  const perLine = Math.max(1, Math.floor((width + 20) / boxWidth));
  const layout = blank(n, width, size, gap, false);
  let top = 0;
  for (let first = 0; first < groups.length; first += perLine) {
    const line = groups.slice(first, first + perLine);
    const rows = Math.max(...line.map((group) => Math.ceil(group.members.length / widest)));
    line.forEach((group, k) => {
      placeBox(layout, group, k * boxWidth, top, widest);
    });
    top += LABEL_PX + rows * (size + gap) + 14;
  }
  layout.height = Math.max(0, top - 14);
  return layout;
}

/** The largest cell with which the boxes stay within the height we aim for. */
function boxCell(nGroups: number, widest: number, width: number): number {
  for (const size of [56, 48, 40, 34, 28, 24, 20]) {
    const boxWidth = Math.max(widest * (size + 4), 96) + 20;
    if (boxWidth > width + 20) continue;
    const lines = Math.ceil(nGroups / Math.max(1, Math.floor((width + 20) / boxWidth)));
    if (lines * (LABEL_PX + size + 18) <= HEIGHT_AIM_PX) return size;
  }
  return Math.max(10, Math.min(18, Math.floor(width / widest) - 4));
}

function placeBox(layout: GridLayout, group: Group, left: number, top: number, perRow: number): void {
  const step = layout.size + layout.gap;
  layout.labels.push({ text: group.label, x: left, y: top + 12, width: Math.max(perRow * step, 96) });
  group.members.forEach((cell, k) => {
    layout.x[cell] = left + (k % perRow) * step;
    layout.y[cell] = top + LABEL_PX + Math.floor(k / perRow) * step;
  });
}

function layoutStrips(groups: Group[], n: number, width: number): GridLayout {
  const tallest = Math.max(1, ...groups.map((group) => group.members.length));
  const rows = Math.min(tallest, STRIP_ROWS_MAX);
  const stripColumns = Math.ceil(tallest / rows);
  const dense = n > GAPS_MAX;
  const { size, gap } = stripCell(groups.length, rows, stripColumns, width, dense);
  const step = size + gap;
  const perBand = Math.max(1, Math.floor(width / (stripColumns * step)));
  const bandHeight = (rows + 1) * step;
  const layout = blank(n, width, size, gap, dense);
  groups.forEach((group, g) => {
    const left = (g % perBand) * stripColumns * step;
    const top = Math.floor(g / perBand) * bandHeight;
    group.members.forEach((cell, k) => {
      layout.x[cell] = left + Math.floor(k / rows) * step;
      layout.y[cell] = top + (k % rows) * step;
    });
  });
  layout.height = Math.ceil(groups.length / perBand) * bandHeight - step;
  return layout;
}

function stripCell(nGroups: number, rows: number, stripColumns: number, width: number, dense: boolean) {
  for (const size of STRIP_SIZES) {
    const gap = dense || size < 4 ? 0 : 1;
    const perBand = Math.floor(width / (stripColumns * (size + gap)));
    if (perBand < 1) continue;
    if (Math.ceil(nGroups / perBand) * (rows + 1) * (size + gap) <= HEIGHT_AIM_PX) return { size, gap };
  }
  return { size: 2, gap: 0 };
}

function blank(n: number, width: number, size: number, gap: number, dense: boolean): GridLayout {
  return { width, height: 0, size, gap, dense, x: new Float32Array(n), y: new Float32Array(n), labels: [] };
}

/** The cell under a point, or -1. Gaps belong to the cell before them, so a slow hand does not lose it. */
export function cellAt(layout: GridLayout, x: number, y: number): number {
  const reach = layout.size + layout.gap;
  for (let i = 0; i < layout.x.length; i++) {
    const dx = x - layout.x[i];
    const dy = y - layout.y[i];
    if (dx >= 0 && dx < reach && dy >= 0 && dy < reach) return i;
  }
  return -1;
}

export type Direction = "left" | "right" | "up" | "down";

/** The nearest cell in a direction, preferring the same line; the same cell at an edge. */
export function cellBeside(layout: GridLayout, from: number, direction: Direction): number {
  const sideways = direction === "left" || direction === "right";
  const sign = direction === "left" || direction === "up" ? -1 : 1;
  let best = from;
  let cost = Number.POSITIVE_INFINITY;
  for (let i = 0; i < layout.x.length; i++) {
    const dx = layout.x[i] - layout.x[from];
    const dy = layout.y[i] - layout.y[from];
    const along = sign * (sideways ? dx : dy);
    const across = Math.abs(sideways ? dy : dx);
    if (along <= 0) continue;
    const price = along + across * 4;
    if (price < cost) {
      cost = price;
      best = i;
    }
  }
  return best;
}
