/* Jobs over time, ranks, nodes, and who is blamed again and again. */

import { ask } from "../api";
import type { IncidentRow } from "../live/rows";
import type { Look, NodeRow, PlotlyFigure } from "../types";

/** A node, GPU or NIC and the incidents whose culprits ran there. */
export interface Recurrence {
  kind: "node" | "gpu" | "nic";
  name: string;
  node: string;
  n_incidents: number;
  newest_at: string;
  incidents: number[];
  /** Date in UTC → how many began that day. */
  days: Record<string, number>;
}

export interface Recurrences {
  since: string;
  rows: Recurrence[];
  n_incidents: number;
  left_out: number;
}

export interface Losses {
  n_nodes: number;
  n_nodes_losing: number;
  n_batches: number;
  kinds: Record<string, number>;
  nodes: NodeLoss[];
  left_out: number;
}

export interface NodeLoss {
  node: string;
  kinds: Record<string, number>;
  rows_dropped: number;
  batches_refused: number;
  strays: number;
}

export interface JobFigures {
  minutes: number;
  steps: PlotlyFigure;
  communication: PlotlyFigure;
  bandwidth: PlotlyFigure;
  losses: Losses;
}

export interface RankPlace {
  rank: number;
  node: string;
  local_rank: number;
  pid: number;
  gpu: string;
  gpu_uuid: string;
  nic: string;
  ip: string;
  tp: number;
  pp: number;
  dp: number;
  ep: number;
  transport: string;
  process: string;
  gone_at: string | null;
  node_mates: number[];
}

export interface InComm {
  comm_id: string;
  name: string;
  comm_rank: number;
  n_ranks: number;
  n_enqueued: number | null;
  n_done: number | null;
  n_p2p_enqueued: number | null;
  n_p2p_done: number | null;
  last_done_at: string | null;
  kernel: "begun" | "not begun" | "ended" | null;
}

export interface FlowNow {
  comm_name: string;
  channel: number;
  peer_rank: number;
  direction: "send" | "receive";
  func: string;
  op: number;
  counters: number[];
  total_chunks: number;
  stuck_ms: number;
}

export interface RankAnswer {
  job: string;
  attempt: number;
  rank: {
    at: string | null;
    place: RankPlace;
    communicators: InComm[];
    flows: FlowNow[];
    left_out: number;
    incidents: number[];
  };
  ops: PlotlyFigure;
  blamed: Recurrences;
}

export interface RankOnNode {
  job_id: number;
  job: string;
  attempt: number;
  /** Of the job's newest attempt. */
  is_newest: boolean;
  rank: number;
  local_rank: number;
  pid: number;
  gpu: string;
  gpu_uuid: string;
  nic: string;
  gone_at: string | null;
}

export interface NodeAnswer {
  name: string;
  nodes: NodeRow[];
  ranks: RankOnNode[];
  incidents: IncidentRow[];
  traffic: PlotlyFigure;
  blamed: Recurrences;
}

export const readJobFigures = (id: number, minutes: number) => ask<JobFigures>(`jobs/${id}/figures?minutes=${minutes}`);
export const readLooks = (id: number, query: string) =>
  ask<{ looks: (Look & { id: number })[]; older: number | null }>(`jobs/${id}/looks${query}`);
export const readRank = (id: number, rank: number) => ask<RankAnswer>(`jobs/${id}/ranks/${rank}`);
export const readNode = (name: string) => ask<NodeAnswer>(`nodes/${encodeURIComponent(name)}`);
export const readRecurrence = () => ask<{ blamed: Recurrences }>("recurrence");

export const rankHref = (job: number, rank: number) => `/jobs/${job}/ranks/${rank}`;
export const nodeHref = (name: string) => `/nodes/${encodeURIComponent(name)}`;
