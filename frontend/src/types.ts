/*
 * What REST answers hold besides live rows: the diagnosis as rca/findings.py writes it, and the columns of the grid and
 * the lanes. Columns are parallel arrays, because 10,000 objects would cost more to parse than to draw.
 */

export interface Evidence {
  what: string;
  value: number | string;
  unit: string;
  source: string;
  rank: number | null;
}

export interface Subject {
  kind: string;
  name: string;
  ranks: number[];
  node: string;
}

export interface Condition {
  state: string;
  rank: number;
  peer_rank: number;
  channel: number;
  direction: string;
  counters: [number, number, number, number];
  total_chunks: number;
  local_cause: string;
  remote_cause: string;
  verdict: string;
}

export interface Symptom {
  kind: string;
  job: string;
  attempt: number;
  at_ns: number;
  seen_ns: number;
  comm_id: number;
  ranks: number[];
  sentence: string;
  numbers: Record<string, number>;
}

export interface WaitEdge {
  waiter: number;
  waits_for: number;
  comm_id: number | string;
  op: number;
  why: string;
}

export interface Finding {
  rule: string;
  version: number;
  subject: Subject;
  component: string;
  kind: string;
  culprits: number[];
  score: number;
  grade: string;
  sentence: string;
  evidence: Evidence[];
  conditions: Condition[];
  tied: Subject[];
  advice: string;
  cover: Cover[];
  parts: Compared[];
  began_ns: number;
}

/** `n` of the `of` things of a kind that `whole` has show what the finding says. */
export interface Cover {
  kind: string;
  n: number;
  of: number;
  whole: string;
}

export interface Compared {
  what: string;
  usual: number;
  now: number;
  unit: string;
}

export interface Alternative {
  subject: Subject;
  why_not: string;
  evidence: Evidence[];
}

export interface NodeClock {
  node: string;
  offset_ns: number;
  error_ns: number;
}

export interface Diagnosis {
  symptom: Symptom;
  findings: Finding[];
  victims: number[];
  path: WaitEdge[];
  communicators: Record<string, string>;
  missing: string[];
  downgraded: string[];
  thresholds: Record<string, number>;
  analysed_ns: number;
  alternatives: Alternative[];
  compared: Compared[];
  clocks: NodeClock[];
  agreement: string[];
  layer: string;
  version: number;
}

export interface Revision {
  id: number;
  at: string;
  verdict: string;
  culprits: number[];
  grade: string;
}

export interface GridColumns {
  at: string;
  nodes: string[];
  /** Of each node where it stands, "" not declared. Absent where the cells are of something that knows no racks. */
  racks?: string[];
  states: string[];
  rank: number[];
  node: number[];
  local_rank: number[];
  tp: number[];
  pp: number[];
  dp: number[];
  ep: number[];
  state: number[];
  note: string[];
  nic: string[];
  gpu: string[];
  pid: (number | null)[];
  /** Empty where the cells are of one moment, as stacks are. */
  last_seen_ms_ago: (number | null)[];
  /** Of an earlier moment: ages are counted back from that. */
  is_past?: boolean;
  /** Words of states that are none of a rank's own: classes of stacks. */
  state_words?: Record<string, string>;
  inferred: boolean;
  world_size: number;
}

export interface Lane {
  id: string;
  rank: number;
  peer_rank: number;
  comm_id: string;
  comm_name: string;
  channel: number;
  direction: string;
  func: string;
  op: number;
  transport: string;
  total_chunks: number;
  t_ns: number[];
  posted: number[];
  ready: number[];
  transmitted: number[];
  done: number[];
  stuck_ms: number[];
  ops: number[];
}

export interface Lanes {
  from_ns: number;
  to_ns: number;
  /** End of what is known, which may be later than what is shown. */
  newest_ns: number;
  first_symptom_ns: number | null;
  triggered_ns: number | null;
  lanes: Lane[];
  omitted: number;
  not_visible: { rank: number; comm_name: string; why: string }[];
}

/** One rank did the same for a while; a condition of Table 4 has a verdict and the flow that shows it. */
export interface Span {
  rank: number;
  from_ns: number;
  to_ns: number;
  doing: string;
  verdict: string;
  comm_id: string;
  comm_name: string;
  op: number;
  peer_rank: number;
  channel: number;
  direction: string;
  counters: number[];
  total_chunks: number;
}

export interface Standing {
  from_ns: number;
  to_ns: number;
  step_ns: number;
  ranks: number[];
  spans: Span[];
  omitted: number;
}

export interface Look {
  at: string;
  kind: string;
  saw: string;
  thresholds: Record<string, number>;
}

export interface NodeRow {
  job: string;
  attempt: number;
  name: string;
  /** As its agent declares them; empty where it does not. */
  cluster: string;
  rack: string;
  state: string;
  last_seen_at: string | null;
  watermark_at: string | null;
  clock_offset_ms: number | null;
  batches: number;
  batches_refused: number;
  rows_dropped: number;
  losses: Record<string, number>;
  strays: number;
  n_ranks: number;
  nics: { name: string; port_state: string; speed_mbps: number | null }[];
}

export interface TokenRow {
  id: number;
  label: string;
  team: string;
  created_at: string;
  last_used_at: string | null;
  prefix?: string;
}

export interface PlotlyFigure {
  data: unknown[];
  layout: Record<string, unknown>;
  config: Record<string, unknown>;
  text: string;
}

export interface Setting {
  name: string;
  group: string;
  unit: string;
  about: string;
  value: number;
  default: number;
  low: number;
  high: number;
  /** Whole numbers only. */
  whole: boolean;
  overridden: boolean;
  changed_at: string | null;
  changed_by: string | null;
  reason: string | null;
}

export interface SettingChange {
  id: number;
  at: string;
  actor: string;
  actor_kind: string;
  name: string;
  /** null: the default. */
  before: number | null;
  after: number | null;
  unit: string;
  reason: string;
}

/** A setting that a colleague changed while it was being edited here. null: the default. */
export interface Overtaken {
  name: string;
  unit: string;
  theirs: number | null;
  yours: number | null;
  changed_by: string;
  changed_at: string;
  reason: string;
}

export interface JobSettings {
  /** Grows with every change. */
  version: number;
  job_id: number;
  job: string;
  team: string;
  may: string[];
  settings: Setting[];
  overridden: string[];
  /** Stored changes that the rules of today cannot use, in sentences. */
  ignored: string[];
  history: SettingChange[];
}
