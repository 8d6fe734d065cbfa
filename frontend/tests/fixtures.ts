/* Made-up grids and lanes: a job of any size, and a flow that runs and then stops. */

import type { GridColumns, Lane, Lanes } from "../src/types";

export const STATES = ["ok", "waiting", "culprit", "silent", "dead", "unknown", "not_visible"];

export function makeGrid(nRanks: number, perNode: number, marks: Record<number, string> = {}): GridColumns {
  const rank = Array.from({ length: nRanks }, (_, i) => i);
  return {
    at: "2026-11-21T13:02:40.000Z",
    nodes: Array.from({ length: Math.ceil(nRanks / perNode) }, (_, n) => `node-${n}`),
    states: STATES,
    rank,
    node: rank.map((i) => Math.floor(i / perNode)),
    local_rank: rank.map((i) => i % perNode),
    tp: rank.map((i) => i % perNode),
    pp: rank.map((i) => Math.floor(i / perNode) % 2),
    dp: rank.map((i) => Math.floor(i / perNode / 2)),
    ep: rank.map(() => -1),
    state: rank.map((i) => STATES.indexOf(marks[i] ?? "waiting")),
    note: rank.map((i) => (marks[i] === "culprit" ? "its NIC is down" : "")),
    nic: rank.map(() => "eth0"),
    gpu: rank.map((i) => `0000:${(0x18 + (i % perNode)).toString(16)}:00.0`),
    pid: rank.map((i) => 41_000 + i),
    last_seen_ms_ago: rank.map((i) => (marks[i] === "unknown" ? null : 300)),
    inferred: false,
    world_size: nRanks,
  };
}

export const SECOND = 1e9;

export function makeLane(changes: Partial<Lane> = {}): Lane {
  const ticks = Array.from({ length: 100 }, (_, i) => i);
  const stoppedAt = 50;
  return {
    id: "4-6",
    rank: 4,
    peer_rank: 6,
    comm_id: "9f3ab1c200d41e77",
    comm_name: "dp-0",
    channel: 0,
    direction: "send",
    func: "AllReduce",
    op: 12,
    transport: "IB",
    total_chunks: 32,
    t_ns: ticks.map((i) => i * 0.1 * SECOND),
    posted: ticks.map((i) => (i < stoppedAt ? 32 : 14)),
    ready: ticks.map((i) => (i < stoppedAt ? 32 : 14)),
    transmitted: ticks.map((i) => (i < stoppedAt ? 32 : 14)),
    done: ticks.map((i) => (i < stoppedAt ? 32 : 8)),
    stuck_ms: ticks.map((i) => (i < stoppedAt ? 0 : (i - stoppedAt) * 100)),
    ops: ticks.map((i) => (i < stoppedAt ? 11 : 12)),
    ...changes,
  };
}

export function makeLanes(lanes: Lane[] = [makeLane()]): Lanes {
  return {
    from_ns: 0,
    to_ns: 10 * SECOND,
    first_symptom_ns: 5 * SECOND,
    triggered_ns: 8 * SECOND,
    lanes,
    omitted: 0,
    not_visible: [],
  };
}
