/*
 * The rows and messages a browser receives: the TypeScript twin of console/incidents/live.py, field for field.
 * The lists of field names exist at run time too, because a message with an unknown or missing field is refused; golden
 * transcripts in tests/golden/live are replayed by both sides.
 */

export const PROTOCOL = 1;

export type IncidentState = "open" | "acknowledged" | "resolved";
export type ConditionState = "firing" | "clearing" | "clear";
export type Certainty = "suspected" | "diagnosed";
export type Severity = "low" | "medium" | "high";
export type JobState = "running" | "stuck" | "slow" | "silent" | "catching_up" | "idle" | "ended" | "unknown";

export interface IncidentRow {
  number: number;
  version: number;
  job_id: number;
  job: string;
  attempt: number;
  symptom: string;
  state: IncidentState;
  condition: ConditionState;
  certainty: Certainty;
  headline: string;
  component: string;
  fault_kind: string;
  grade: string;
  culprits: number[];
  n_culprits: number;
  suspects: number[];
  n_suspects: number;
  n_victims: number;
  opened_at: string;
  first_symptom_at: string;
  triggered_at: string;
  root_caused_at: string | null;
  acknowledged_at: string | null;
  acknowledged_by: string | null;
  resolved_at: string | null;
  resolution: string | null;
  regressed: boolean;
  recurrence_of: number | null;
  updated_at: string;
  acknowledged_until: string | null;
  severity: Severity;
  assignee: string;
  nodes: string[];
  silence: number | null;
  silenced_until: string | null;
  attached_to: number | null;
  n_attached: number;
  review: string;
}

export interface TimelineRow {
  id: number;
  incident: number;
  at: string;
  actor: string;
  actor_kind: string;
  verb: string;
  before: string;
  after: string;
  note: string;
}

export interface JobRow {
  id: number;
  name: string;
  team: string;
  attempt: number;
  state: JobState;
  n_ranks: number;
  world_size: number;
  n_nodes: number;
  nodes_reporting: number;
  last_data_at: string | null;
  ops_per_s: number | null;
  op_interval_ms: number | null;
  looked_at: string | null;
  incident: number | null;
}

export interface IngestRow {
  store: string;
  disk: string;
  disk_says: string;
  processes: number | null;
  batches_per_s: number | null;
  nodes_reporting: number;
  nodes_silent: number;
  nodes_catching_up: number;
  nodes_unheard: number;
  rows_dropped: number;
  batches_refused: number;
  requests_refused: Record<string, number>;
  losses: Record<string, number>;
  strays: number;
  counted_since: string | null;
}

/** How many of the nodes asked for dumps have answered. */
export interface DumpsRow {
  incident: number;
  request: number;
  nodes_answered: number;
  nodes_expected: number;
  ranks_answered: number;
}

interface MessageFields {
  v: typeof PROTOCOL;
  stream: string;
  epoch: string;
  offset: number;
  at: string;
}

export type LiveMessage = MessageFields &
  (
    | { type: "incident.opened" | "incident.changed"; row: IncidentRow }
    | { type: "timeline.appended"; row: TimelineRow }
    | { type: "job.changed"; row: JobRow }
    | { type: "ingest.changed"; row: IngestRow }
    | { type: "dumps"; row: DumpsRow }
  );

type MessageType = LiveMessage["type"];

const INCIDENT: (keyof IncidentRow)[] = [
  "number",
  "version",
  "job_id",
  "job",
  "attempt",
  "symptom",
  "state",
  "condition",
  "certainty",
  "headline",
  "component",
  "fault_kind",
  "grade",
  "culprits",
  "n_culprits",
  "suspects",
  "n_suspects",
  "n_victims",
  "opened_at",
  "first_symptom_at",
  "triggered_at",
  "root_caused_at",
  "acknowledged_at",
  "acknowledged_by",
  "resolved_at",
  "resolution",
  "regressed",
  "recurrence_of",
  "updated_at",
  "acknowledged_until",
  "severity",
  "assignee",
  "nodes",
  "silence",
  "silenced_until",
  "attached_to",
  "n_attached",
  "review",
];
const TIMELINE: (keyof TimelineRow)[] = [
  "id",
  "incident",
  "at",
  "actor",
  "actor_kind",
  "verb",
  "before",
  "after",
  "note",
];
const JOB: (keyof JobRow)[] = [
  "id",
  "name",
  "team",
  "attempt",
  "state",
  "n_ranks",
  "world_size",
  "n_nodes",
  "nodes_reporting",
  "last_data_at",
  "ops_per_s",
  "op_interval_ms",
  "looked_at",
  "incident",
];
const INGEST: (keyof IngestRow)[] = [
  "store",
  "disk",
  "disk_says",
  "processes",
  "batches_per_s",
  "nodes_reporting",
  "nodes_silent",
  "nodes_catching_up",
  "nodes_unheard",
  "rows_dropped",
  "batches_refused",
  "requests_refused",
  "losses",
  "strays",
  "counted_since",
];
const DUMPS: (keyof DumpsRow)[] = ["incident", "request", "nodes_answered", "nodes_expected", "ranks_answered"];

export const FIELDS: Record<MessageType, string[]> = {
  "incident.opened": INCIDENT,
  "incident.changed": INCIDENT,
  "timeline.appended": TIMELINE,
  "job.changed": JOB,
  "ingest.changed": INGEST,
  dumps: DUMPS,
};
