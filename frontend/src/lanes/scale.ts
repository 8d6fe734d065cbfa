/*
 * Time and progress of the lanes, as numbers: where a moment lies, which tick a crosshair reads, what one pixel column
 * shows when several ticks share it (the least progress and the longest stall win: a lane never hides the worst).
 */

import { FLOW_STATE } from "../state/words";
import type { Lane, Lanes, NodeClock } from "../types";

/** A flow that made no progress for this long is drawn as stalled. */
export const STALL_MS = 500;
/** Ticks come every 100 ms while an op runs; after a longer silence nothing was in progress, or nothing was seen. */
export const TICK_HOLD_MS = 250;

/**
 * The lanes' own window, a little longer when the trigger's look came just after it, so that its mark can be drawn.
 */
export function shownRange(lanes: Lanes): Lanes {
  const triggered = lanes.triggered_ns ?? lanes.to_ns;
  const late = triggered > lanes.to_ns && triggered - lanes.to_ns < 5e9;
  return late ? { ...lanes, to_ns: triggered + (lanes.to_ns - lanes.from_ns) / 50 } : lanes;
}

/** Clocks that differ by less do not show on an axis of seconds. */
const CLOCK_SHOWN_NS = 20e6;

/** Lanes on one clock: each node's ticks are put back by what its clock is ahead, where that is known. */
export function onOneClock(lanes: Lanes, clocks: readonly NodeClock[], nodeOf: (rank: number) => string): Lanes {
  const wrong = clocks.filter((clock) => Math.abs(clock.offset_ns) > Math.max(CLOCK_SHOWN_NS, clock.error_ns));
  if (wrong.length === 0) return lanes;
  const ahead = new Map(wrong.map((clock) => [clock.node, clock.offset_ns]));
  const put = (lane: Lane) => {
    const by = ahead.get(nodeOf(lane.rank));
    return by ? { ...lane, t_ns: lane.t_ns.map((ns) => ns - by) } : lane;
  };
  return { ...lanes, lanes: lanes.lanes.map(put) };
}

/** A moment that all lanes share, drawn through them. */
export interface Moment {
  kind: "began" | "first" | "trigger";
  word: string;
  ns: number;
}

/**
 * When it began by the evidence, was first seen and noticed; what lies outside the window is left out. What is sampled may
 * be seen at the culprit only after others were seen to wait: then it did not begin there.
 */
export function momentsOf(lanes: Lanes, beganNs: number): Moment[] {
  const isLate = lanes.first_symptom_ns !== null && beganNs > lanes.first_symptom_ns;
  const moments: [Moment["kind"], string, number | null][] = [
    ["began", isLate ? "seen at culprit" : "fault began", beganNs || null],
    ["first", "first symptom", lanes.first_symptom_ns],
    ["trigger", "triggered", lanes.triggered_ns],
  ];
  return moments.flatMap(([kind, word, ns]) =>
    ns !== null && ns >= lanes.from_ns && ns <= lanes.to_ns ? [{ kind, word, ns }] : [],
  );
}

export interface Column {
  x: number;
  width: number;
  ready: number;
  transmitted: number;
  done: number;
  stalled: boolean;
}

/** Only ticks that hold in [fromNs, toNs] are read: of a lane with many a narrow part costs little. */
export function laneColumns(lane: Lane, fromNs: number, toNs: number, width: number): Column[] {
  const columns: Column[] = [];
  const toX = (ns: number) => ((ns - fromNs) / (toNs - fromNs)) * width;
  for (let i = Math.max(0, tickAt(lane, fromNs - 1)); i < lane.t_ns.length && lane.t_ns[i] <= toNs; i++) {
    const x = toX(lane.t_ns[i]);
    const end = toX(Math.min(nextTick(lane, i), toNs));
    if (end < 0) continue;
    const column = columnAt(lane, i, Math.max(0, Math.floor(x)), Math.ceil(end));
    const last = columns.at(-1);
    if (last && last.x === column.x) columns[columns.length - 1] = worse(last, column);
    else columns.push(column);
  }
  return columns;
}

function nextTick(lane: Lane, i: number): number {
  const hold = lane.t_ns[i] + TICK_HOLD_MS * 1e6;
  return i + 1 < lane.t_ns.length ? Math.min(lane.t_ns[i + 1], hold) : hold;
}

function columnAt(lane: Lane, i: number, x: number, end: number): Column {
  const total = totalAt(lane, i);
  return {
    x,
    width: Math.max(1, end - x),
    ready: share(lane.ready[i], total),
    transmitted: share(lane.transmitted[i], total),
    done: share(lane.done[i], total),
    stalled: lane.stuck_ms[i] >= STALL_MS,
  };
}

function worse(a: Column, b: Column): Column {
  return {
    x: a.x,
    width: Math.max(a.width, b.width),
    ready: Math.min(a.ready, b.ready),
    transmitted: Math.min(a.transmitted, b.transmitted),
    done: Math.min(a.done, b.done),
    stalled: a.stalled || b.stalled,
  };
}

function share(n: number, total: number): number {
  return total > 0 ? Math.max(0, Math.min(1, n / total)) : 0;
}

/** total_chunks is the newest op's; an older op of another size is scaled by what it posted. */
function totalAt(lane: Lane, i: number): number {
  return lane.ops[i] === lane.ops.at(-1)
    ? lane.total_chunks
    : Math.max(lane.posted[i], lane.ready[i], lane.total_chunks);
}

const starts = new WeakMap<Lane, number[]>();

/** Indexes of the ticks at which a further op began; several may be in progress, so their rows alternate. */
export function opStarts(lane: Lane): number[] {
  const known = starts.get(lane);
  if (known) return known;
  const found: number[] = [];
  let newest = lane.ops[0] ?? 0;
  for (let i = 0; i < lane.ops.length; i++) {
    if (lane.ops[i] > newest) found.push(i);
    newest = Math.max(newest, lane.ops[i]);
  }
  starts.set(lane, found);
  return found;
}

/** The tick a crosshair at `ns` reads: the last one at or before it; -1 when there is none. */
export function tickAt(lane: Lane, ns: number): number {
  let [low, high] = [0, lane.t_ns.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (lane.t_ns[middle] <= ns) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/** Table 4's condition at a tick, "" while the flow has nothing left to do or is moving. */
export function conditionAt(lane: Lane, i: number): string {
  if (i < 0) return "";
  const [ready, transmitted, done] = [lane.ready[i], lane.transmitted[i], lane.done[i]];
  if (done >= totalAt(lane, i) && totalAt(lane, i) > 0) return "";
  if (ready === 0 && transmitted === 0 && done === 0) return "not_started";
  if (ready > transmitted) return "not_transmitted";
  if (transmitted > done) return "not_delivered";
  return "gpu_not_ready";
}

export const RECEIVE_WORDS: Record<string, string> = {
  not_started: "Nothing received yet",
  not_transmitted: "Received but not flushed",
  not_delivered: "Flushed but not consumed by the GPU",
  gpu_not_ready: "Next chunk not yet received",
};

/** Ticks of different nodes end up to a second apart; a tick older than this no longer tells what the flow does. */
export const TICK_FRESH_MS = 1500;

/** The tick that tells what the flow did at `ns`; -1 when no op was in progress, or nothing was seen. */
export function freshTickAt(lane: Lane, ns: number): number {
  const i = tickAt(lane, ns);
  return i >= 0 && ns - lane.t_ns[i] <= TICK_FRESH_MS * 1e6 ? i : -1;
}

/** Ticks this close belong to one reading of the flow: one row for every op in progress. */
const SAME_TICK_NS = 50 * 1e6;

/** Of the ops in progress at `ns`, the tick of the unfinished one that is stuck longest; -1 as `freshTickAt`. */
export function tellingTickAt(lane: Lane, ns: number): number {
  const newest = freshTickAt(lane, ns);
  let telling = newest;
  for (let i = newest - 1; i >= 0 && lane.t_ns[newest] - lane.t_ns[i] < SAME_TICK_NS; i--) {
    if (tellsMore(lane, i, telling)) telling = i;
  }
  return telling;
}

function tellsMore(lane: Lane, i: number, than: number): boolean {
  const [mine, other] = [i, than].map((n) => conditionAt(lane, n) !== "");
  if (mine !== other) return mine;
  if (lane.stuck_ms[i] !== lane.stuck_ms[than]) return lane.stuck_ms[i] > lane.stuck_ms[than];
  return lane.ops[i] < lane.ops[than];
}

export function isStuck(lane: Lane, i: number): boolean {
  return i >= 0 && lane.stuck_ms[i] >= STALL_MS;
}

/** The server sends at most so many ticks of a flow. */
const TICKS_MAX = 600;
const GAP_NS = 1.5e9;

/**
 * Until when a lane's history was not kept; null where it is complete. A flow that was cut off at its limit lost what
 * came before its first tick; before the first tick of all flows nothing is known of any.
 */
export function notKeptUntil(lanes: Lanes, lane: Lane): number | null {
  const first = lane.t_ns.length >= TICKS_MAX ? lane.t_ns[0] : firstOfAll(lanes.lanes);
  return Number.isFinite(first) && first - lanes.from_ns > GAP_NS ? first : null;
}

const firsts = new WeakMap<readonly Lane[], number>();

/** The first tick of all lanes, which every lane asks for; Infinity when there is none. */
function firstOfAll(lanes: readonly Lane[]): number {
  const known = firsts.get(lanes);
  if (known !== undefined) return known;
  const found = lanes.reduce(
    (least, { t_ns }) => Math.min(least, t_ns[0] ?? Number.POSITIVE_INFINITY),
    Number.POSITIVE_INFINITY,
  );
  firsts.set(lanes, found);
  return found;
}

/** The condition in words, from the flow's own side. */
export function conditionWords(lane: Lane, i: number): string {
  const code = conditionAt(lane, i);
  if (!code) return i < 0 ? "No op in progress on this flow" : "Op complete";
  return isReceive(lane) ? RECEIVE_WORDS[code] : (FLOW_STATE[code]?.word ?? code);
}

export function isReceive(lane: Lane): boolean {
  return lane.direction.startsWith("r");
}

/** The three counters that follow `posted`, as NCCL names them for this direction. */
export function counterNames(lane: Lane): [string, string, string] {
  return isReceive(lane) ? ["received", "flushed", "consumed"] : ["GPU ready", "transmitted", "done"];
}

const STEPS_S = [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600];

/** Round moments about `apartPx` pixels apart. */
export function rulerTicks(fromNs: number, toNs: number, width: number, apartPx = 90): { stepS: number; at: number[] } {
  const wanted = ((toNs - fromNs) / 1e9 / Math.max(1, width)) * apartPx;
  const stepS = STEPS_S.find((step) => step >= wanted) ?? 1200;
  const step = stepS * 1e9;
  const at: number[] = [];
  for (let ns = Math.ceil(fromNs / step) * step; ns <= toNs; ns += step) at.push(ns);
  return { stepS, at };
}
