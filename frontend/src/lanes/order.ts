/*
 * The order of the lanes: culprits, then of a tie who may be, then who only waits, then others; within each what the verdict rests on first, then
 * what else stands still, flows without an op last; of those alike, unless cited, the ones with a culprit at the other end. Ties fall to
 * the flow's name, so that a lane keeps its place while its counters move.
 */

import { ROLES, type Role, rolesOf, suspectsOf } from "../state/roles";
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

export interface Verdict {
  culprits: readonly number[];
  victims: readonly number[];
  finding: Finding | null;
  /** Names of the communicators in which the waiting goes on; none: nothing is known of it. */
  affected: readonly string[];
}

export function tellingFirst(lanes: Lanes, { culprits, finding, affected }: Verdict): Lane[] {
  const suspects = new Set([...culprits, ...suspectsOf(finding)]);
  const cited = citedFlows(finding);
  const known = new Set(affected);
  const weight = (lane: Lane) => {
    const isCited = citedKeys(lane).some((one) => cited.has(one));
    const i = tellingTickAt(lane, lanes.to_ns);
    if (i < 0) return isCited ? 5 : 6;
    if (isCited) return 0;
    if (!isStuck(lane, i)) return 4;
    if (known.size > 0 && !known.has(lane.comm_name)) return 3;
    return suspects.has(lane.rank) ? 1 : 2;
  };
  const weights = new Map(lanes.lanes.map((lane) => [lane, weight(lane)]));
  const towards = (lane: Lane) => (weights.get(lane) === 0 || suspects.has(lane.peer_rank) ? 0 : 1);
  return lanes.lanes.toSorted(
    (a, b) => (weights.get(a) ?? 0) - (weights.get(b) ?? 0) || towards(a) - towards(b) || byName(a, b),
  );
}

export interface LaneGroup {
  role: Role;
  lanes: Lane[];
}

/** Lanes by role, culprits first; empty groups are left out. */
export function laneGroups(lanes: Lanes, verdict: Verdict): LaneGroup[] {
  const roleOf = rolesOf(verdict.culprits, suspectsOf(verdict.finding), verdict.victims);
  const ordered = tellingFirst(lanes, verdict);
  return ROLES.map((role) => ({ role, lanes: ordered.filter((lane) => roleOf(lane.rank) === role) })).filter(
    (group) => group.lanes.length > 0,
  );
}

/** The first lanes of every group, `most` in all: no group may crowd out those after it. */
export function firstOf(groups: readonly LaneGroup[], most: number): LaneGroup[] {
  let room = most;
  return groups
    .map(({ role, lanes }, n) => {
      const later = groups.slice(n + 1).reduce((sum, group) => sum + group.lanes.length, 0);
      const shown = lanes.slice(0, Math.max(Math.ceil(room / 2), room - later));
      room -= shown.length;
      return { role, lanes: shown };
    })
    .filter((group) => group.lanes.length > 0);
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
