/*
 * The grid larger than its place on the page: only what is in sight is drawn, as large as it scrolls. Pure; px of the page.
 */

import type { GridLayout } from "./layout";

/** A cell a finger can hit: larger ones show nothing more. */
export const CELL_MAX_PX = 48;
const HEIGHT_MIN_PX = 320;
const WINDOW_SHARE = 0.7;
/** Touching cells as large as this get a gap, and their hatch. */
const CELL_WITH_GAP_PX = 8;

/** How much larger than laid out, and how far scrolled then. */
export interface View {
  times: number;
  left: number;
  top: number;
}

export function timesMax({ size, gap }: GridLayout): number {
  return Math.max(1, CELL_MAX_PX / (size + gap));
}

/** How tall the part in sight is: as the whole was, unless that is very low, or more than most of the window. */
export function heightInSight({ height }: GridLayout, times: number, windowHeight: number): number {
  if (times === 1) return height;
  return Math.min(height * times, Math.max(HEIGHT_MIN_PX, Math.min(height, Math.round(windowHeight * WINDOW_SHARE))));
}

/** The layout as it is in sight: places may be outside 0 … width, 0 … height. */
export function magnified(layout: GridLayout, view: View, height: number): GridLayout {
  const { times, left, top } = view;
  const step = (layout.size + layout.gap) * times;
  const dense = layout.dense && step < CELL_WITH_GAP_PX;
  const gap = layout.gap > 0 ? layout.gap * times : layout.dense && !dense ? 1 : 0;
  const moved = (places: Float32Array, by: number) => places.map((place) => place * times - by);
  return {
    width: layout.width,
    height,
    size: step - gap,
    gap,
    dense,
    x: moved(layout.x, left),
    y: moved(layout.y, top),
    labels: layout.labels.map((label) => ({
      text: label.text,
      x: label.x * times - left,
      y: label.y * times - top,
      width: label.width * times,
    })),
    of: { layout, view },
  };
}

/** Where to scroll so that the point of the layout lies so far from the corner of what is in sight. */
export function scrolledTo(point: { x: number; y: number }, times: number, from: { x: number; y: number }) {
  return { left: point.x * times - from.x, top: point.y * times - from.y };
}

/** Whether a cell of what is in sight is wholly in it. */
export function isInSight({ x, y, size, width, height }: GridLayout, cell: number): boolean {
  return x[cell] >= 0 && y[cell] >= 0 && x[cell] + size <= width + 1 && y[cell] + size <= height + 1;
}
