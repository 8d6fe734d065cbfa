/*
 * Draws the lanes: per tick three steps of progress, light (GPU ready) to solid (done), hatched where nothing moved.
 * One canvas for all lanes, because they share one time axis and one crosshair.
 */

import { hatchPattern, prepared } from "../grid/paint";
import { colour } from "../state/theme";
import type { Lane, Lanes } from "../types";
import type { LaneGroup } from "./order";
import { type Column, laneColumns, type Moment, notKeptUntil, opStarts, rulerTicks } from "./scale";
import type { Sight } from "./useSight";
import type { Span } from "./zoom";

export const LANE_PX = 46;
const INSET_PX = 7;
const NOT_KEPT_WORD_PX = 72;
/** Ops that begin closer together than this would only draw a fence. */
const OP_MARK_APART_PX = 12;

/** A heading above the lanes of one role. */
export const HEADING_PX = 26;

/** Colours and hatches, asked for once a painting: asking the browser costs more than a lane does. */
interface Look {
  stall: string;
  hatch: CanvasPattern | null;
}

interface Pens {
  ready: string;
  transmitted: string;
  done: string;
  ink: string;
  card: string;
  font: string;
  notKept: CanvasPattern | string;
  culprit: Look;
  other: Look;
}

function pensOf(context: CanvasRenderingContext2D): Pens {
  const look = (name: string, kind: "rising" | "falling"): Look => ({
    stall: colour(name),
    hatch: hatchPattern(context, kind, colour(`${name}-mark`)),
  });
  return {
    ready: colour("lane-ready"),
    transmitted: colour("lane-transmitted"),
    done: colour("lane-done"),
    ink: colour("ink-3"),
    card: colour("card"),
    font: `12px ${getComputedStyle(document.body).fontFamily}`,
    notKept: hatchPattern(context, "falling", colour("rank-unknown")) ?? colour("rank-unknown"),
    culprit: look("lane-stall", "rising"),
    other: look("lane-wait", "falling"),
  };
}

/** Tops of every lane in order, and the height of all: a heading stands above each group's first. */
export function laneTops(groups: readonly LaneGroup[]): { tops: number[]; height: number } {
  const tops: number[] = [];
  let y = 0;
  for (const { lanes } of groups) {
    if (groups.length > 1) y += HEADING_PX;
    for (const _ of lanes) {
      tops.push(y);
      y += LANE_PX;
    }
  }
  return { tops, height: y };
}

/**
 * Paints the lanes in sight, of the time in `view`: what is drawn costs, not what is known. sight: the part of all lanes'
 * height that the canvas covers; left out: all of it.
 */
export function paintLanes(
  canvas: HTMLCanvasElement,
  lanes: Lanes,
  groups: readonly LaneGroup[],
  moments: readonly Moment[],
  width: number,
  view: Span = lanes,
  sight?: Sight,
): void {
  const { tops, height } = laneTops(groups);
  const { top, bottom } = sight ?? { top: 0, bottom: height };
  const context = prepared(canvas, width, bottom - top);
  if (!context) return;
  context.translate(0, -top);
  paintRules(context, view, tops, { top, bottom }, width);
  const pens = pensOf(context);
  let n = 0;
  for (const { role, lanes: some } of groups) {
    for (const lane of some) {
      const at = tops[n++];
      if (at + LANE_PX < top || at > bottom) continue;
      paintLane(
        context,
        lane,
        at,
        width,
        view,
        pens,
        role === "culprit" || role === "suspect" ? pens.culprit : pens.other,
      );
      paintNotKept(context, view, notKeptUntil(lanes, lane), at, width, pens);
    }
  }
  paintNotKnown(context, lanes.newest_ns, view, height, width, pens);
  for (const moment of moments) paintMoment(context, moment, timeX(view, moment.ns, width), height);
}

function paintRules(
  context: CanvasRenderingContext2D,
  view: Span,
  tops: readonly number[],
  sight: Sight,
  width: number,
): void {
  context.fillStyle = colour("line-2");
  for (const ns of rulerTicks(view.from_ns, view.to_ns, width).at) {
    context.fillRect(Math.round(timeX(view, ns, width)), sight.top, 1, sight.bottom - sight.top);
  }
  context.fillStyle = colour("line");
  for (const top of tops) if (top > 0 && top >= sight.top && top <= sight.bottom) context.fillRect(0, top, width, 1);
}

/** One lane: progress, hatch where it stands still, and small marks where ops begin. */
function paintLane(
  context: CanvasRenderingContext2D,
  lane: Lane,
  top: number,
  width: number,
  view: Span,
  pens: Pens,
  look: Look,
): void {
  const columns = laneColumns(lane, view.from_ns, view.to_ns, width);
  const base = top + LANE_PX - INSET_PX;
  const full = LANE_PX - 2 * INSET_PX;
  const stalled = columns.filter((column) => column.stalled);
  fillColumns(context, stalled, look.stall, base, full, () => 1);
  fillColumns(context, columns, pens.ready, base, full, (column) => column.ready);
  fillColumns(context, columns, pens.transmitted, base, full, (column) => column.transmitted);
  fillColumns(context, columns, pens.done, base, full, (column) => column.done);
  // Over the progress: a flow that stands still with everything transmitted must not look healthy.
  if (look.hatch) fillColumns(context, stalled, look.hatch, base, full, () => 1);
  paintOpStarts(context, lane, view, base, width, pens);
}

function paintOpStarts(
  context: CanvasRenderingContext2D,
  lane: Lane,
  view: Span,
  base: number,
  width: number,
  pens: Pens,
): void {
  const began = opStarts(lane).filter((i) => lane.t_ns[i] >= view.from_ns && lane.t_ns[i] <= view.to_ns);
  if (began.length > width / OP_MARK_APART_PX) return;
  context.fillStyle = pens.ink;
  for (const i of began) context.fillRect(Math.round(timeX(view, lane.t_ns[i], width)), base, 1, 4);
}

function paintNotKept(
  context: CanvasRenderingContext2D,
  view: Span,
  until: number | null,
  top: number,
  width: number,
  pens: Pens,
): void {
  if (until === null || until <= view.from_ns) return;
  const x = Math.min(width, Math.round(timeX(view, until, width)));
  context.fillStyle = pens.notKept;
  context.fillRect(0, top + INSET_PX, x, LANE_PX - 2 * INSET_PX);
  if (x < NOT_KEPT_WORD_PX) return;
  context.font = pens.font;
  context.textBaseline = "middle";
  context.fillStyle = pens.card;
  context.fillRect(6, top + LANE_PX / 2 - 9, NOT_KEPT_WORD_PX - 12, 18);
  context.fillStyle = pens.ink;
  context.fillText("not kept", 10, top + LANE_PX / 2);
}

/** After the newest data nothing is known: an empty end would look like a quiet job. */
function paintNotKnown(
  context: CanvasRenderingContext2D,
  newestNs: number,
  view: Span,
  height: number,
  width: number,
  pens: Pens,
): void {
  if (newestNs >= view.to_ns) return;
  const x = Math.max(0, Math.round(timeX(view, newestNs, width)));
  context.fillStyle = pens.notKept;
  context.fillRect(x, 0, width - x, height);
}

/** Columns side by side of one height are one rectangle: of a flow that rests, one in all. */
function fillColumns(
  context: CanvasRenderingContext2D,
  columns: Column[],
  fill: string | CanvasPattern,
  base: number,
  full: number,
  heightOf: (column: Column) => number,
): void {
  context.fillStyle = fill;
  let [x, end, height] = [0, 0, 0];
  for (const column of columns) {
    const next = Math.round(full * heightOf(column));
    if (next !== height || column.x > end) {
      if (height > 0) context.fillRect(x, base - height, end - x, height);
      x = column.x;
      height = next;
      end = column.x;
    }
    end = Math.max(end, column.x + column.width);
  }
  if (height > 0) context.fillRect(x, base - height, end - x, height);
}

const MOMENT_COLOUR = { began: "rank-culprit-ring", first: "lane-first", trigger: "lane-trigger" };
const MOMENT_DASH = { began: [], first: [7, 3], trigger: [3, 3] };

function paintMoment(context: CanvasRenderingContext2D, { kind }: Moment, x: number, height: number): void {
  context.strokeStyle = colour(MOMENT_COLOUR[kind]);
  context.lineWidth = kind === "began" ? 2.5 : 1.5;
  context.setLineDash(MOMENT_DASH[kind]);
  context.beginPath();
  context.moveTo(Math.round(x) + 0.5, 0);
  context.lineTo(Math.round(x) + 0.5, height);
  context.stroke();
  context.setLineDash([]);
}

export function timeX(span: Span, ns: number, width: number): number {
  return ((ns - span.from_ns) / (span.to_ns - span.from_ns)) * width;
}
