/*
 * The scrubber's minutes as a slider: whole seconds from the left, the newest at the right end with a gap before it, so
 * that a hand at the end means the newest. Pure.
 */

import { serverNow, spanWords, timeOfDay, zoneLabel } from "../state/clock";
import type { Moment, Moments } from "./past";

/** The gap before the newest, as a share of the minutes. */
const GAP_SHARE = 0.03;
/** Where much time lies between the minutes and the newest. */
const BREAK_SHARE = 0.1;
const BREAK_MS = 5000;

export interface Minutes {
  fromMs: number;
  /** Seconds from fromMs to the last moment of which anything can be known. */
  steps: number;
  /** The value that means the newest. */
  newest: number;
}

export function minutesOf(moments: Moments): Minutes {
  const fromMs = Math.ceil(moments.from_ns / 1e6);
  const steps = Math.max(1, Math.floor((Math.min(moments.to_ns, moments.newest_ns) / 1e6 - fromMs) / 1000));
  const share = skippedMs(moments) > 0 ? BREAK_SHARE : GAP_SHARE;
  return { fromMs, steps, newest: steps + Math.max(1, Math.round(steps * share)) };
}

/** How much time there is between the end of the minutes and the newest, which no place on the track means; 0 for none. */
export function skippedMs({ to_ns, newest_ns }: Moments): number {
  const ms = (newest_ns - to_ns) / 1e6;
  return ms > BREAK_MS ? ms : 0;
}

/** What the right end of the track is, in words: up to when it goes, and what lies between that and the newest. */
export function endWords(moments: Moments, newest: string): string {
  const { fromMs, steps } = minutesOf(moments);
  const until = timeOfDay(fromMs + steps * 1000);
  const skipped = skippedMs(moments);
  return skipped > 0 ? `${until} ┆ ${spanWords(skipped)} not on the track ┆ ${newest}` : `${until}, ${newest}`;
}

/** The moment a slider's value means; null: the newest. */
export function momentAt({ fromMs, steps }: Minutes, value: number): number | null {
  return value > steps ? null : fromMs + Math.max(0, value) * 1000;
}

export function valueAt({ fromMs, steps, newest }: Minutes, ms: number | null): number {
  return ms === null ? newest : Math.max(0, Math.min(steps, Math.round((ms - fromMs) / 1000)));
}

/** Where a moment stands on the track, 0 to 1; moments outside the minutes at their ends. */
export function placeAt({ fromMs, newest }: Minutes, ms: number): number {
  return Math.max(0, Math.min(1, (ms - fromMs) / 1000 / newest));
}

/** Stretches of the track of which nothing is stored. */
export function gapsOf(moments: Moments): { from: number; to: number }[] {
  const minutes = minutesOf(moments);
  const ends = [moments.from_ns, ...moments.held.flatMap(({ from_ns, to_ns }) => [from_ns, to_ns]), moments.to_ns];
  const gaps = [];
  for (let i = 0; i < ends.length; i += 2) {
    if (ends[i + 1] > ends[i])
      gaps.push({ from: placeAt(minutes, ends[i] / 1e6), to: placeAt(minutes, ends[i + 1] / 1e6) });
  }
  if (skippedMs(moments) > 0) gaps.push({ from: placeAt(minutes, moments.to_ns / 1e6), to: 1 });
  return gaps;
}

/** "12:03:41 UTC, 4 min ago, 2.4 s after the fault began" */
export function momentWords(ms: number, moments: readonly Moment[]): string {
  return [`${timeOfDay(ms)} ${zoneLabel()}`, agoWords(ms), nearWords(ms, moments)].filter(Boolean).join(", ");
}

export function agoWords(ms: number): string {
  return `${spanWords(Math.max(0, serverNow() - ms))} ago`;
}

const LATER_SHOWN = 2;

/** "3 later: admin acknowledged, admin commented, …"; "" where nothing came after the minutes. */
export function laterWords({ later, after }: Moments): string {
  if (later === 0) return "";
  const words = after.slice(0, LATER_SHOWN).map((one) => one.word);
  return `${later} later: ${words.join(", ")}${later > words.length ? ", …" : ""}`;
}

const NEAR_MS = 60_000;
const REFERENCE: Moment["kind"][] = ["began", "symptom", "trigger"];

/** How far it is from the earliest moment of the fault; "" far from it. */
export function nearWords(ms: number, moments: readonly Moment[]): string {
  const first = REFERENCE.map((kind) => moments.find((one) => one.kind === kind)).find((one) => one !== undefined);
  if (!first) return "";
  const by = ms - first.at_ns / 1e6;
  if (Math.abs(by) > NEAR_MS) return "";
  return Math.abs(by) < 50 ? first.word : `${spanWords(Math.abs(by))} ${by < 0 ? "before" : "after"} ${first.word}`;
}

/** The moment before or after one; null where there is none. From the newest, the last is before. */
export function momentBeside(moments: readonly Moment[], ms: number | null, step: 1 | -1): Moment | null {
  const at = ms ?? Number.POSITIVE_INFINITY;
  const further = moments.filter((one) => (step < 0 ? whole(one) < at - 0.5 : whole(one) > at + 0.5));
  return (step < 0 ? further.at(-1) : further[0]) ?? null;
}

/** A moment as the address holds it. */
export function whole(moment: Moment): number {
  return Math.round(moment.at_ns / 1e6);
}
