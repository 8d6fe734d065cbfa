/*
 * Where the boxes of the waiting path lie: culprits on the left and layers to the right of them, or, where that is too
 * narrow, one below the other and indented. Every box has a band of its own, so that no two overlap. Pure.
 */

import type { PathBox } from "./path";

export const BOX_H = 44;
const GAP_Y = 14;
/** Between two layers: the arrow and its label, in two lines. */
export const GAP_X = 98;
const BOX_W_MAX = 216;
const BOX_W_MIN = 112;
const INDENT = 22;
const LABEL_H = 20;
/** Left of culprits that wait for each other: the arrows of the circle. */
const CIRCLE_W = 40;

export interface Placed extends PathBox {
  x: number;
  y: number;
  width: number;
}

export interface Placement {
  placed: Placed[];
  width: number;
  height: number;
  isTall: boolean;
}

export function placeBoxes(boxes: readonly PathBox[], width: number): Placement {
  const layers = 1 + Math.max(...boxes.map((box) => box.layer));
  const left = boxes.some((box) => box.layer === 0 && box.waitsFor.length > 0) ? CIRCLE_W : 0;
  const room = (width - left - GAP_X * (layers - 1)) / layers;
  return room < BOX_W_MIN ? tall(boxes, left, width) : wide(boxes, left, Math.min(BOX_W_MAX, room));
}

/** Boxes that wait for this one and are drawn beside it: a box is drawn once, beside the first it waits for. */
function childrenOf(boxes: readonly PathBox[], parent: PathBox): PathBox[] {
  return boxes.filter((box) => box.layer > 0 && box.waitsFor[0] === parent.id);
}

function wide(boxes: readonly PathBox[], left: number, boxWidth: number): Placement {
  const placed: Placed[] = [];
  let bottom = 0;
  const place = (box: PathBox): number => {
    const ys = childrenOf(boxes, box).map(place);
    const y = ys.length > 0 ? (ys[0] + ys[ys.length - 1]) / 2 : bottom;
    if (ys.length === 0) bottom += BOX_H + GAP_Y;
    placed[box.id] = { ...box, x: left + box.layer * (boxWidth + GAP_X), y, width: boxWidth };
    return y;
  };
  for (const root of boxes.filter((box) => box.layer === 0)) place(root);
  const right = Math.max(...placed.map((box) => box.x + box.width));
  return { placed, width: right, height: bottom - GAP_Y, isTall: false };
}

function tall(boxes: readonly PathBox[], left: number, width: number): Placement {
  const placed: Placed[] = [];
  let bottom = 0;
  const place = (box: PathBox): void => {
    const x = left + box.layer * INDENT;
    if (box.layer > 0) bottom += LABEL_H;
    placed[box.id] = { ...box, x, y: bottom, width: width - x };
    bottom += BOX_H + (box.layer > 0 ? 4 : GAP_Y);
    childrenOf(boxes, box).forEach(place);
  };
  for (const root of boxes.filter((box) => box.layer === 0)) place(root);
  return { placed, width, height: bottom, isTall: true };
}

/** The line from who waits to who is waited for. */
export function arrowPath(from: Placed, to: Placed, isTall: boolean): string {
  if (from.layer === 0) return circleArrow(from, to);
  if (isTall) {
    const x = to.x + INDENT / 2;
    return `M${from.x - 1} ${from.y + BOX_H / 2}H${x}V${to.y + BOX_H + 3}`;
  }
  const [x1, y1] = [from.x - 2, from.y + BOX_H / 2];
  const [x2, y2] = [to.x + to.width + 4, to.y + BOX_H / 2];
  const bend = Math.min(46, (x1 - x2) / 2);
  return `M${x1} ${y1}H${x2 + bend + 18}C${x2 + bend - 8} ${y1} ${x2 + bend} ${y2} ${x2} ${y2}`;
}

/** Two culprits wait for each other: there and back beside them, apart from each other. */
function circleArrow(from: Placed, to: Placed): string {
  const down = from.y < to.y;
  const reach = down ? CIRCLE_W : CIRCLE_W / 2;
  const y1 = from.y + BOX_H / 2 + (down ? -8 : 8);
  const y2 = to.y + BOX_H / 2 + (down ? 8 : -8);
  return `M${from.x - 1} ${y1}C${from.x - reach} ${y1} ${to.x - reach} ${y2} ${to.x - 4} ${y2}`;
}
