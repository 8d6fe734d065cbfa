/*
 * snapshot + message = snapshot, as a pure function. A page fetches a REST snapshot that names its stream's epoch and
 * offset, then applies messages in offset order. Another epoch or a skipped offset is a gap: the caller fetches the
 * snapshot again. Messages already contained in the snapshot change nothing, so a replay is harmless.
 */

import type { IncidentRow, IngestRow, JobRow, LiveMessage, TimelineRow } from "./rows";

export interface StreamPlace {
  name: string;
  epoch: string;
  offset: number;
}

export interface Snapshot {
  stream: StreamPlace;
  incidents: IncidentRow[];
  jobs: JobRow[];
  ingest: IngestRow | null;
  timeline: TimelineRow[];
}

export type Outcome = "applied" | "ignored" | "gap";

export function emptySnapshot(stream: StreamPlace): Snapshot {
  return { stream, incidents: [], jobs: [], ingest: null, timeline: [] };
}

export function applyMessage(snapshot: Snapshot, message: LiveMessage): { snapshot: Snapshot; outcome: Outcome } {
  const { stream } = snapshot;
  if (message.stream !== stream.name) return { snapshot, outcome: "ignored" };
  if (message.epoch !== stream.epoch) return { snapshot, outcome: "gap" };
  if (message.offset <= stream.offset) return { snapshot, outcome: "ignored" };
  if (message.offset > stream.offset + 1) return { snapshot, outcome: "gap" };
  const moved = { ...snapshot, stream: { ...stream, offset: message.offset } };
  return { snapshot: withRow(moved, message), outcome: "applied" };
}

function withRow(snapshot: Snapshot, message: LiveMessage): Snapshot {
  switch (message.type) {
    case "incident.opened":
    case "incident.changed":
      return { ...snapshot, incidents: putIncident(snapshot.incidents, message.row) };
    case "timeline.appended":
      return { ...snapshot, timeline: putEntry(snapshot.timeline, message.row) };
    case "job.changed":
      return { ...snapshot, jobs: putJob(snapshot.jobs, message.row) };
    case "ingest.changed":
      return { ...snapshot, ingest: message.row };
    case "dumps":
      return snapshot;
  }
}

/** `rows` with `row` in it, newest number first. An older version never replaces a newer one. */
export function putIncident(rows: IncidentRow[], row: IncidentRow): IncidentRow[] {
  const present = rows.find((one) => one.number === row.number);
  if (!present) return [...rows, row].sort((a, b) => b.number - a.number);
  if (present.version > row.version) return rows;
  return rows.map((one) => (one.number === row.number ? row : one));
}

/** `entries` with `entry` at its place; an entry that is there already is not repeated. */
export function putEntry(entries: TimelineRow[], entry: TimelineRow): TimelineRow[] {
  if (entries.some((one) => one.id === entry.id)) return entries;
  return [...entries, entry].sort((a, b) => a.id - b.id);
}

function putJob(rows: JobRow[], row: JobRow): JobRow[] {
  const present = rows.some((one) => one.id === row.id);
  return present ? rows.map((one) => (one.id === row.id ? row : one)) : [...rows, row];
}
