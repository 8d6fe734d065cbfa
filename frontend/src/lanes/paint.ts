/*
 * Draws the lanes: per tick three steps of progress, light (GPU ready) to solid (done), hatched where nothing moved.
 * One canvas for all lanes, because they share one time axis and one crosshair.
 */

import { hatchPattern, prepared } from "../grid/paint";
import { colour } from "../state/theme";
import type { Lane, Lanes } from "../types";
import type { LaneGroup } from "./order";
import { type Column, laneColumns, type Moment, notKeptUntil, opStarts, rulerTicks } from "./scale";

export const LANE_PX = 46;
const INSET_PX = 7;
const NOT_KEPT_WORD_PX = 72;
/** Ops that begin closer together than this would only draw a fence. */
const OP_MARK_APART_PX = 12;

/** A heading above the lanes of one role. */
export const HEADING_PX = 26;

interface Look {
  stall: string;
  hatch: CanvasPattern | null;
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

export function paintLanes(
  canvas: HTMLCanvasElement,
  lanes: Lanes,
  groups: readonly LaneGroup[],
  moments: readonly Moment[],
  width: number,
): void {
  const { tops, height } = laneTops(groups);
  const context = prepared(canvas, width, height);
  if (!context) return;
  paintRules(context, lanes, tops, height, width);
  const [stalled, waiting] = ["lane-stall", "lane-wait"].map((name) => ({
    stall: colour(name),
    hatch: hatchPattern(context, name === "lane-stall" ? "rising" : "falling", colour(`${name}-mark`)),
  }));
  const drawn = groups.flatMap(({ role, lanes: some }) => some.map((lane) => ({ role, lane })));
  drawn.forEach(({ role, lane }, n) => {
    paintLane(context, lanes, lane, tops[n], width, role === "culprit" ? stalled : waiting);
  });
  paintNotKnown(context, lanes, height, width);
  for (const moment of moments) paintMoment(context, moment, timeX(lanes, moment.ns, width), height);
}

function paintRules(
  context: CanvasRenderingContext2D,
  lanes: Lanes,
  tops: readonly number[],
  height: number,
  width: number,
): void {
  context.fillStyle = colour("line-2");
  for (const ns of rulerTicks(lanes.from_ns, lanes.to_ns, width).at) {
    context.fillRect(Math.round(timeX(lanes, ns, width)), 0, 1, height);
  }
  context.fillStyle = colour("line");
  for (const top of tops) if (top > 0) context.fillRect(0, top, width, 1);
}

/** One lane: progress, hatch where it stands still, and small marks where ops begin. */
function paintLane(
  context: CanvasRenderingContext2D,
  lanes: Lanes,
  lane: Lane,
  top: number,
  width: number,
  look: Look,
): void {
  const columns = laneColumns(lane, lanes.from_ns, lanes.to_ns, width);
  const base = top + LANE_PX - INSET_PX;
  const full = LANE_PX - 2 * INSET_PX;
  const stalled = columns.filter((column) => column.stalled);
  fillColumns(context, stalled, look.stall, base, full, () => 1);
  fillColumns(context, columns, colour("lane-ready"), base, full, (column) => column.ready);
  fillColumns(context, columns, colour("lane-transmitted"), base, full, (column) => column.transmitted);
  fillColumns(context, columns, colour("lane-done"), base, full, (column) => column.done);
  // Over the progress: a flow that stands still with everything transmitted must not look healthy.
  if (look.hatch) fillColumns(context, stalled, look.hatch, base, full, () => 1);
  paintNotKept(context, lanes, lane, top, width);
  const marks = opStarts(lane).map((i) => Math.round(timeX(lanes, lane.t_ns[i], width)));
  if (marks.length > width / OP_MARK_APART_PX) return;
  context.fillStyle = colour("ink-3");
  for (const x of marks) context.fillRect(x, base, 1, 4);
}

function paintNotKept(context: CanvasRenderingContext2D, lanes: Lanes, lane: Lane, top: number, width: number): void {
  const until = notKeptUntil(lanes, lane);
  if (until === null) return;
  const x = Math.round(timeX(lanes, until, width));
  context.fillStyle = hatchPattern(context, "falling", colour("rank-unknown")) ?? colour("rank-unknown");
  context.fillRect(0, top + INSET_PX, x, LANE_PX - 2 * INSET_PX);
  if (x < NOT_KEPT_WORD_PX) return;
  context.font = `12px ${getComputedStyle(document.body).fontFamily}`;
  context.textBaseline = "middle";
  context.fillStyle = colour("card");
  context.fillRect(6, top + LANE_PX / 2 - 9, NOT_KEPT_WORD_PX - 12, 18);
  context.fillStyle = colour("ink-3");
  context.fillText("not kept", 10, top + LANE_PX / 2);
}

/** After the newest data nothing is known: an empty end would look like a quiet job. */
function paintNotKnown(context: CanvasRenderingContext2D, lanes: Lanes, height: number, width: number): void {
  if (lanes.newest_ns >= lanes.to_ns) return;
  const x = Math.round(timeX(lanes, lanes.newest_ns, width));
  context.fillStyle = hatchPattern(context, "falling", colour("rank-unknown")) ?? colour("rank-unknown");
  context.fillRect(x, 0, width - x, height);
}

function fillColumns(
  context: CanvasRenderingContext2D,
  columns: Column[],
  fill: string | CanvasPattern,
  base: number,
  full: number,
  heightOf: (column: Column) => number,
): void {
  context.fillStyle = fill;
  for (const column of columns) {
    const height = Math.round(full * heightOf(column));
    context.fillRect(column.x, base - height, column.width, height);
  }
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

export function timeX(lanes: Lanes, ns: number, width: number): number {
  return ((ns - lanes.from_ns) / (lanes.to_ns - lanes.from_ns)) * width;
}
