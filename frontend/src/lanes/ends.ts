/*
 * Where the lanes end, in words: nobody must take an empty end for a quiet job. Pure.
 */

import { spanWords, timeOfDay, zoneLabel } from "../state/clock";
import type { Lanes } from "../types";
import { isStuck, tellingTickAt } from "./scale";

/** Data comes once a second: lanes that end so little before it are as new as it is. */
const END_SHOWN_NS = 6e9;
/** Ticks come every 100 ms while an op runs, and a node's once a second. */
const QUIET_NS = 3e9;

/** How much later than the lanes' end something is known; 0 where the lanes are as new as it is. */
export function laterMs({ newest_ns, to_ns }: Lanes): number {
  return newest_ns - to_ns > END_SHOWN_NS ? (newest_ns - to_ns) / 1e6 : 0;
}

/** Whether anything can be said of a moment; after the newest data a flow is neither idle nor stuck, it is not known. */
export function isKnownAt({ newest_ns }: Lanes, ns: number): boolean {
  return ns <= newest_ns;
}

/** When the last tick of any flow was; null where there is none. */
export function lastTickNs({ lanes }: Lanes): number | null {
  const last = Math.max(...lanes.map((lane) => lane.t_ns.at(-1) ?? Number.NEGATIVE_INFINITY));
  return Number.isFinite(last) ? last : null;
}

/** "Ends at 13:02:51 UTC because at most a minute is drawn; what is known goes on for 4 min." */
export function endWords(lanes: Lanes): string {
  const end = `${timeOfDay(lanes.to_ns / 1e6)} ${zoneLabel()}`;
  const later = laterMs(lanes);
  const why =
    later > 0
      ? `Ends at ${end}: ${spanWords((lanes.to_ns - lanes.from_ns) / 1e6)} are drawn, what is known goes on for ${spanWords(later)}.`
      : `Ends at ${end}: nothing newer is known.`;
  const at = isKnownAt(lanes, lanes.to_ns) ? lanes.to_ns : lanes.newest_ns;
  const moves = lanes.lanes.length > 0 && !lanes.lanes.some((lane) => isStuck(lane, tellingTickAt(lane, at)));
  const last = lastTickNs(lanes);
  const isQuiet = last !== null && lanes.to_ns - last > QUIET_NS;
  return isQuiet
    ? `${why} After ${timeOfDay(last / 1e6)} none of these flows was in progress.`
    : moves
      ? `${why} None of them stands still: the words beside a flow are of that one moment.`
      : why;
}
