/*
 * What REST answers say of dumps: requests for them and who answered, stacks grouped by what they do, and what the
 * Flight Recorder kept. Incidents and bundles answer in the same shapes, so one set of parts draws both.
 */

import type { Diagnosis, Finding } from "../types";

export interface SilentRank {
  rank: number;
  node: string;
  kind: string;
  why: string;
}

export type RequestState = "open" | "answered" | "expired";

export interface DumpRequest {
  id: number;
  asked_at: string;
  asked_by: string;
  kinds: string[];
  state: RequestState;
  nodes_expected: number;
  nodes_answered: number;
  ranks_answered: number;
  /** At most 200 of `silent_count`. */
  silent: SilentRank[];
  silent_count: number;
  /** Parts that were over a limit. */
  left_out?: number;
}

export interface DumpsAnswer {
  requests: DumpRequest[];
  can_ask: boolean;
  why_not: string;
}

export interface Frame {
  function: string;
  file: string;
  line: number;
}

export type CommandKind = "trainer" | "loader" | "checkpoint" | "other";

export interface StackGroup {
  id: number | string;
  kind: CommandKind;
  place: string;
  /** One line: what they do. */
  said: string;
  ranks: number[];
  count: number;
  is_dominant: boolean;
  /** At a place where one may only be waiting for others. */
  is_wait?: boolean;
  frozen: number;
  moving: number;
  /** Innermost first. */
  frames: Frame[];
  /** Of other threads only. */
  thread?: string;
}

export interface TreeNode {
  name: string;
  count: number;
  children: TreeNode[];
}

export interface RankPlace {
  rank: number;
  node: string;
  tp: number | null;
  pp: number | null;
  dp: number | null;
  ep: number | null;
}

export interface StacksAnswer {
  request: number | null;
  taken_at: string | null;
  looks: number;
  commands: { kind: CommandKind; command: string; count: number }[];
  order: { places: RankPlace[] };
  groups: StackGroup[];
  /** Of threads that are not the main one: most of it is the same on every rank and says nothing. */
  other_threads?: StackGroup[];
  tree: TreeNode | null;
  /** At most 200 of `silent_count`. */
  silent: SilentRank[];
  silent_count?: number;
  left_out: number;
}

export interface DiffLine {
  op: " " | "+" | "-";
  line: string;
}

export interface RankProcess {
  pid: number;
  parent: number | null;
  kind: CommandKind;
  command: string;
  silent: string;
  looks: { taken_at: string; text: string }[];
  against_majority: DiffLine[];
}

export interface RankStacksAnswer {
  rank: number;
  processes: RankProcess[];
}

export interface RecorderRank {
  rank: number;
  enqueued: number | null;
  started: number | null;
  completed: number | null;
  state: string;
  op: string;
  size: string;
  dtype: string;
  age_s: number | null;
}

export interface RecorderGroup {
  name: string;
  desc: string;
  members: number[] | null;
  inferred: boolean;
  said: string;
  ranks: RecorderRank[];
  /** Members of which no dump came. */
  unheard?: number[];
}

export interface LastOp {
  rank: number;
  group: string;
  seq: number;
  op: string;
  state: string;
  stream: string | number | null;
}

export interface RecorderAnswer {
  request: number | null;
  version: string;
  backend: string;
  groups: RecorderGroup[];
  last_ops: LastOp[];
  findings: Finding[];
  /** Why the job is taken to have gone on while it was dumped, as a sentence; "" or absent when it stood still. */
  moving?: string;
  /** At most 200 of `refused_count`, as of `silent_count`. */
  refused: Record<string, string>;
  refused_count?: number;
  silent: SilentRank[];
  silent_count?: number;
  left_out?: { groups: number; rows: number; last_ops: number };
}

export interface BundleAnswer {
  id: string;
  name: string;
  state: "waiting" | "reading" | "done" | "refused";
  progress: number;
  /** Why nobody reads it yet, in a sentence; empty while that is as usual. */
  waits_for: string;
  refused: string;
  diagnosis: Diagnosis | null;
  agreement: string[];
  layer: string;
  stacks: StacksAnswer | null;
  recorder: RecorderAnswer | null;
}
