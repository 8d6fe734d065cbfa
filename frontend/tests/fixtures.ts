/* Made-up grids and lanes: a job of any size, and a flow that runs and then stops. */

import type { IncidentRow, JobRow } from "../src/live/rows";
import type { Condition, Diagnosis, Finding, GridColumns, Lane, Lanes } from "../src/types";

export const STATES = ["ok", "waiting", "culprit", "silent", "dead", "unknown", "not_visible", "suspect"];

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
    newest_ns: 10 * SECOND,
    first_symptom_ns: 5 * SECOND,
    triggered_ns: 8 * SECOND,
    lanes,
    omitted: 0,
    not_visible: [],
  };
}

export function makeCondition(changes: Partial<Condition> = {}): Condition {
  return {
    state: "not_delivered",
    rank: 4,
    peer_rank: 6,
    channel: 0,
    direction: "send",
    counters: [14, 14, 14, 8],
    total_chunks: 32,
    local_cause: "RDMA issue: the NIC or link loses it",
    remote_cause: "receiver failed",
    verdict: "local",
    ...changes,
  };
}

export function makeFinding(changes: Partial<Finding> = {}): Finding {
  return {
    rule: "hang",
    version: 1,
    subject: { kind: "rank", name: "rank 4", ranks: [4], node: "node-1" },
    component: "nic",
    kind: "communication_fail_stop",
    culprits: [4],
    score: 0.9,
    grade: "strong",
    sentence: "Rank 4 started it.",
    evidence: [],
    conditions: [],
    tied: [],
    advice: "",
    cover: [],
    parts: [],
    began_ns: 0,
    ...changes,
  };
}

export function makeDiagnosis(changes: Partial<Diagnosis> = {}): Diagnosis {
  return {
    symptom: {
      kind: "failure",
      job: "llama",
      attempt: 1,
      at_ns: 5 * SECOND,
      seen_ns: 8 * SECOND,
      comm_id: 0,
      ranks: [0, 4],
      sentence: "No op has completed for 3.0 s on ranks 0 and 4, with ops in progress.",
      numbers: {},
    },
    findings: [makeFinding()],
    victims: [0, 1, 2, 3, 5, 6, 7],
    path: [{ waiter: 6, waits_for: 4, comm_id: "77", op: 12, why: "no chunk came" }],
    communicators: { 77: "dp_0" },
    missing: [],
    downgraded: [],
    thresholds: {},
    analysed_ns: 9 * SECOND,
    alternatives: [],
    compared: [],
    clocks: [],
    agreement: [],
    layer: "",
    version: 2,
    ...changes,
  };
}

export const AT = "2026-11-21T15:05:40.000Z";

export function makeIncident(changes: Partial<IncidentRow> = {}): IncidentRow {
  return {
    number: 12,
    version: 1,
    job_id: 1,
    job: "llama",
    attempt: 1,
    symptom: "failure",
    state: "open",
    condition: "firing",
    certainty: "diagnosed",
    headline: "Rank 4 started it.",
    component: "nic",
    fault_kind: "communication_fail_stop",
    grade: "strong",
    culprits: [4],
    n_culprits: 1,
    suspects: [4],
    n_suspects: 1,
    n_victims: 7,
    opened_at: AT,
    first_symptom_at: AT,
    triggered_at: AT,
    root_caused_at: null,
    acknowledged_at: null,
    acknowledged_by: null,
    resolved_at: null,
    resolution: null,
    regressed: false,
    recurrence_of: null,
    updated_at: AT,
    acknowledged_until: null,
    severity: "high",
    assignee: "",
    nodes: [],
    silence: null,
    silenced_until: null,
    attached_to: null,
    n_attached: 0,
    review: "",
    ...changes,
  };
}

export function makeJob(changes: Partial<JobRow> = {}): JobRow {
  return {
    id: 1,
    name: "llama",
    team: "training",
    attempt: 1,
    state: "running",
    n_ranks: 8,
    world_size: 8,
    n_nodes: 4,
    nodes_reporting: 4,
    last_data_at: AT,
    ops_per_s: 10,
    op_interval_ms: 100,
    looked_at: AT,
    incident: null,
    ...changes,
  };
}
