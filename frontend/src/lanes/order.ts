/*
 * The order of the lanes: what the verdict rests on first, then what else stands still, flows without an op last. Ties
 * fall to the flow's name, so that a lane keeps its place while its counters move.
 */

import type { Finding, Lane, Lanes } from "../types";
import { isReceive, isStuck, tellingTickAt } from "./scale";

const CITED = /^(.*) op \d+ channel (\d+), rank (\d+) to (\d+)/;

/** Keys of the flows that a finding's conditions and evidence speak of; see `citedKeys`. */
export function citedFlows(finding: Finding | null): ReadonlySet<string> {
  const keys = (finding?.conditions ?? []).map((one) =>
    key(one.rank, one.peer_rank, one.channel, one.direction.startsWith("r")),
  );
  for (const { what } of finding?.evidence ?? []) {
    const [, comm, channel, from, to] = CITED.exec(what) ?? [];
    if (comm === undefined) continue;
    const [sender, receiver] = [Number(from), Number(to)];
    keys.push(key(sender, receiver, Number(channel), false, comm), key(receiver, sender, Number(channel), true, comm));
  }
  return new Set(keys);
}

/** Conditions do not name the communicator, evidence does: a lane is cited by either. */
function citedKeys(lane: Lane): string[] {
  const known = [lane.rank, lane.peer_rank, lane.channel, isReceive(lane)] as const;
  return [key(...known), key(...known, lane.comm_name)];
}

function key(rank: number, peer: number, channel: number, receives: boolean, comm = "*"): string {
  return `${rank} ${receives ? "from" : "to"} ${peer} ${channel} ${comm}`;
}

export function tellingFirst(lanes: Lanes, culprits: readonly number[], finding: Finding | null): Lane[] {
  const cited = citedFlows(finding);
  const weight = (lane: Lane) => {
    const isCited = citedKeys(lane).some((one) => cited.has(one));
    const i = tellingTickAt(lane, lanes.to_ns);
    if (i < 0) return isCited ? 4 : 5;
    if (isCited) return 0;
    if (!isStuck(lane, i)) return 3;
    return culprits.includes(lane.rank) ? 1 : 2;
  };
  return lanes.lanes.toSorted((a, b) => weight(a) - weight(b) || byName(a, b));
}

function byName(a: Lane, b: Lane): number {
  return (
    a.rank - b.rank ||
    a.peer_rank - b.peer_rank ||
    a.comm_name.localeCompare(b.comm_name, "en", { numeric: true }) ||
    a.channel - b.channel ||
    a.direction.localeCompare(b.direction)
  );
}
