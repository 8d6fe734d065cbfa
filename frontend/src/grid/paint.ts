/*
 * Draws the cells. Few states and many cells: one path per state, so a repaint of 10,000 cells stays within a frame;
 * touching cells become pixels of one small image. Culprits are hatched and ringed, unknown is hatched slate: colour
 * alone never carries the state.
 */

import { colour } from "../state/theme";
import type { GridLayout } from "./layout";

/** Names of the CSS custom properties that colour the states. */
const FILL: Record<string, string> = {
  ok: "rank-ok",
  waiting: "rank-waiting",
  culprit: "rank-culprit",
  suspect: "rank-suspect",
  silent: "rank-silent",
  dead: "rank-dead",
  unknown: "rank-unknown",
  not_visible: "rank-not-visible",
  "level-0": "layer-0",
  "level-1": "layer-1",
  "level-2": "layer-2",
  "level-3": "layer-3",
  "level-4": "layer-4",
  "level-5": "layer-5",
  "level-6": "layer-6",
  same: "class-same",
  "class-1": "class-1",
  "class-2": "class-2",
  "class-3": "class-3",
  "class-4": "class-4",
  "class-5": "class-5",
  "class-6": "class-6",
};
const HATCHED: Record<string, "rising" | "falling" | "dots" | "cross"> = {
  culprit: "rising",
  suspect: "rising",
  unknown: "falling",
  not_visible: "dots",
  dead: "cross",
  silent: "falling",
  "class-1": "rising",
  "class-2": "dots",
  "class-3": "cross",
  "class-4": "falling",
  "class-5": "dots",
  "class-6": "rising",
};
/** States whose cells are ringed, with the ring's colour: a few among thousands must be found. */
const RINGED: Record<string, string> = {
  culprit: "rank-culprit-ring",
  suspect: "rank-suspect-mark",
  "class-1": "class-1",
  "class-2": "class-2",
  "class-3": "class-3",
  "class-4": "class-4",
  "class-5": "class-5",
  "class-6": "class-6",
};
const RINGS_MAX = 512;
const HATCH_MIN_PX = 5;
const NUMBER_MIN_PX = 20;
const NUMBER_LOW_PX = 8;
/** Around the cells: room for the rings of those at the edge. */
export const RING_ROOM_PX = 5;

/** Which of `states` each cell is painted as. */
export interface Cells {
  states: readonly string[];
  state: ArrayLike<number>;
  rank: readonly number[];
}

export interface Marks {
  selected: number;
  pointed: readonly number[];
}

/** Of "level-2 dead" that of the layer: what hatches it lies over it. */
export function fillName(state: string): string {
  return FILL[state.split(" ")[0]] ?? "rank-unknown";
}

/** Where a cell is too small for a hatch, whose rank is not heard has the colour of that. */
export function smallFillName(state: string): string {
  return fillName(state.split(" ")[1] ?? state);
}

const hatchKind = (state: string) => HATCHED[state.split(" ")[1] ?? state];

/** columns: how the cells are coloured. ringedAs: whose states are ringed, where the colours are of something else. */
export function paintGrid(canvas: HTMLCanvasElement, layout: GridLayout, columns: Cells, ringedAs?: Cells): void {
  const context = ringed(canvas, layout);
  if (!context) return;
  if (layout.dense) paintPixels(context, layout, columns);
  else paintCells(context, layout, columns);
  paintLabels(context, layout);
  if (layout.size >= NUMBER_MIN_PX) paintNumbers(context, layout, columns);
  ringThoseThatMatter(context, layout, columns);
  if (ringedAs) ringThoseThatMatter(context, layout, ringedAs);
}

/** Hover and selection, on a canvas of their own: a moving pointer must not repaint 100,000 cells. */
export function paintMarks(canvas: HTMLCanvasElement, layout: GridLayout, marks: Marks): void {
  const context = ringed(canvas, layout);
  if (!context) return;
  for (const cell of marks.pointed) outline(context, layout, cell, 1);
  outline(context, layout, marks.selected, 2);
}

function ringed(canvas: HTMLCanvasElement, layout: GridLayout): CanvasRenderingContext2D | null {
  const context = prepared(canvas, layout.width + 2 * RING_ROOM_PX, layout.height + 2 * RING_ROOM_PX);
  context?.translate(RING_ROOM_PX, RING_ROOM_PX);
  return context;
}

/** Larger canvases stay blank: sides are limited everywhere, areas on phones. */
const SIDE_MAX = 32_000;
const AREA_MAX = 16_000_000;

/** The screen's own resolution, coarser where the canvas would be too large to be drawn at all. */
export function scaleFor(width: number, height: number): number {
  const longest = Math.max(width, height, 1);
  const fits = Math.min(SIDE_MAX / longest, Math.sqrt(AREA_MAX / Math.max(1, width * height)));
  return Math.min(devicePixelRatio || 1, fits);
}

/** A cleared 2D context whose unit is a CSS pixel, at the screen's own resolution; null where there is no canvas. */
export function prepared(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D | null {
  const scale = scaleFor(width, height);
  const [w, h] = [Math.max(1, Math.round(width * scale)), Math.max(1, Math.round(height * scale))];
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext?.("2d") ?? null;
  context?.setTransform(scale, 0, 0, scale, 0, 0);
  context?.clearRect(0, 0, width, height);
  return context;
}

/** Only cells in sight: of a grid that is zoomed most are not. */
function cellsByState(layout: GridLayout, columns: Cells): number[][] {
  const cells: number[][] = columns.states.map(() => []);
  for (let i = 0; i < columns.state.length; i++) if (isSeen(layout, i)) cells[columns.state[i]]?.push(i);
  return cells;
}

function isSeen({ of, x, y, size, width, height }: GridLayout, i: number): boolean {
  const room = size + RING_ROOM_PX;
  return !of || (x[i] > -room && y[i] > -room && x[i] < width + room && y[i] < height + room);
}

function paintCells(context: CanvasRenderingContext2D, layout: GridLayout, columns: Cells): void {
  cellsByState(layout, columns).forEach((cells, code) => {
    if (cells.length === 0) return;
    const state = columns.states[code];
    const path = cellPath(layout, cells);
    const isHatched = layout.size >= HATCH_MIN_PX;
    context.fillStyle = colour(isHatched ? fillName(state) : smallFillName(state));
    context.fill(path);
    const hatch = isHatched ? hatchOf(context, state) : null;
    if (!hatch) return;
    context.fillStyle = hatch;
    context.fill(path);
  });
}

function cellPath(layout: GridLayout, cells: number[]): Path2D {
  const path = new Path2D();
  const { size, x, y } = layout;
  const round = size >= 12 ? Math.min(5, size / 6) : 0;
  for (const i of cells) {
    if (round) path.roundRect(x[i], y[i], size, size, round);
    else path.rect(x[i], y[i], size, size);
  }
  return path;
}

function hatchOf(context: CanvasRenderingContext2D, state: string): CanvasPattern | null {
  const kind = hatchKind(state);
  const stroke = state.includes(" ") ? "ink" : "mark"; // layers have no mark of their own
  return kind ? hatchPattern(context, kind, colour(`${fillName(state)}-${stroke}`)) : null;
}

export function hatchPattern(
  context: CanvasRenderingContext2D,
  kind: "rising" | "falling" | "dots" | "cross",
  stroke: string,
): CanvasPattern | null {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const pen = tile.getContext("2d");
  if (!pen) return null;
  pen.strokeStyle = pen.fillStyle = stroke;
  pen.lineWidth = 1.25;
  pen.beginPath();
  if (kind === "rising" || kind === "cross")
    strokes(pen, [
      [-1, 7, 7, -1],
      [-1, 1, 1, -1],
      [5, 7, 7, 5],
    ]);
  if (kind === "falling" || kind === "cross")
    strokes(pen, [
      [-1, -1, 7, 7],
      [5, -1, 7, 1],
      [-1, 5, 1, 7],
    ]);
  if (kind === "dots") pen.arc(3, 3, 1, 0, 7);
  if (kind === "dots") pen.fill();
  else pen.stroke();
  return context.createPattern(tile, "repeat");
}

function strokes(pen: CanvasRenderingContext2D, lines: [number, number, number, number][]): void {
  for (const [fromX, fromY, toX, toY] of lines) {
    pen.moveTo(fromX, fromY);
    pen.lineTo(toX, toY);
  }
}

const WHOLE = { times: 1, left: 0, top: 0 };

function paintPixels(context: CanvasRenderingContext2D, layout: GridLayout, columns: Cells): void {
  const { size, x, y, width, height } = layout.of?.layout ?? layout;
  const { times, left, top } = layout.of?.view ?? WHOLE;
  const [w, h] = [Math.ceil(width / size), Math.ceil(height / size)];
  const raster = document.createElement("canvas");
  raster.width = w;
  raster.height = h;
  const pen = raster.getContext("2d");
  if (!pen) return;
  const image = pen.createImageData(w, h);
  const pixels = new Uint32Array(image.data.buffer);
  const palette = columns.states.map((state) => packed(colour(smallFillName(state))));
  for (let i = 0; i < x.length; i++) pixels[(y[i] / size) * w + x[i] / size] = palette[columns.state[i]];
  pen.putImageData(image, 0, 0);
  context.imageSmoothingEnabled = false;
  context.drawImage(raster, -left, -top, w * size * times, h * size * times);
}

/** "rgb(213, 94, 0)" as the 32-bit number ImageData wants (little-endian RGBA). */
export function packed(css: string): number {
  const [red, green, blue] = (css.match(/[\d.]+/g) ?? ["0", "0", "0"]).map(Number);
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

function paintLabels(context: CanvasRenderingContext2D, layout: GridLayout): void {
  context.fillStyle = colour("ink-3");
  context.font = `12px ${getComputedStyle(document.body).fontFamily}`;
  for (const { text, x, y, width } of layout.labels) context.fillText(clipped(context, text, width), x, y);
}

function clipped(context: CanvasRenderingContext2D, text: string, width: number): string {
  if (context.measureText(text).width <= width) return text;
  let end = text.length;
  while (end > 1 && context.measureText(`${text.slice(0, end)}…`).width > width) end--;
  return `${text.slice(0, end)}…`;
}

function paintNumbers(context: CanvasRenderingContext2D, layout: GridLayout, columns: Cells): void {
  const height = numberHeight(layout.size, columns.rank.at(-1) ?? 0);
  if (height < NUMBER_LOW_PX) return;
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.font = `600 ${height}px ${getComputedStyle(document.body).fontFamily}`;
  for (let i = 0; i < layout.x.length; i++) {
    if (!isSeen(layout, i)) continue;
    const state = columns.states[columns.state[i]];
    const [x, y] = [layout.x[i] + layout.size / 2, layout.y[i] + layout.size / 2 + 0.5];
    const text = String(columns.rank[i]);
    if (hatchKind(state)) plate(context, text, x, y, colour(fillName(state)));
    context.fillStyle = colour(`${fillName(state)}-ink`);
    context.fillText(text, x, y);
  }
  context.textAlign = "start";
  context.textBaseline = "alphabetic";
}

/** Digits are about two thirds as wide as high: the longest number must fit its cell. */
export function numberHeight(size: number, largest: number): number {
  return Math.min(15, size / 2.4, (size - 4) / (0.68 * String(largest).length));
}

/** A plain patch behind a number, so that the hatch does not cross it. */
function plate(context: CanvasRenderingContext2D, text: string, x: number, y: number, fill: string): void {
  const width = context.measureText(text).width + 6;
  context.fillStyle = fill;
  context.fillRect(x - width / 2, y - 9, width, 17);
}

/** Rings around a crowd would only be noise: the hatch carries it. */
function ringThoseThatMatter(context: CanvasRenderingContext2D, layout: GridLayout, columns: Cells): void {
  const { size } = layout;
  const reach = size >= 12 ? 2.5 : 4;
  context.lineWidth = 2;
  cellsByState(layout, columns).forEach((cells, code) => {
    const ring = RINGED[columns.states[code].split(" ")[0]];
    if (!ring || (cells.length > RINGS_MAX && columns.states[code] !== "culprit")) return;
    context.strokeStyle = colour(ring);
    for (const i of cells)
      context.strokeRect(layout.x[i] - reach, layout.y[i] - reach, size + 2 * reach, size + 2 * reach);
  });
}

function outline(context: CanvasRenderingContext2D, layout: GridLayout, cell: number, width: number): void {
  if (cell < 0 || cell >= layout.x.length) return;
  context.strokeStyle = colour("ink");
  context.lineWidth = width;
  const reach = layout.size >= 12 ? 2 : 1;
  context.strokeRect(layout.x[cell] - reach, layout.y[cell] - reach, layout.size + 2 * reach, layout.size + 2 * reach);
}
