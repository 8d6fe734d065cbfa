/*
 * How well an incident, or a job, can still be seen. "Still happening" and "running" are only as good as the newest data
 * and the newest look: when either is old, or the attempt is over, the page says so instead of repeating what was.
 */

import type { IncidentRow, JobRow, JobState } from "../live/rows";
import { spanWords, timeOfDay } from "./clock";

/** Three regular looks missed. */
export const BLIND_MS = 30_000;

/** Why `row` cannot be seen now, in words; null while it can. `job`: its job's newest row, undefined when not known. */
export function whyBlind(row: IncidentRow, job: JobRow | undefined, nowMs: number): string | null {
  if (!job) return null;
  if (job.attempt !== row.attempt) return `attempt ${row.attempt} is over`;
  if (job.state === "ended") return "the job ended";
  const dataMs = row.symptom === "silence" ? 0 : age(job.last_data_at, nowMs);
  if (!Number.isFinite(dataMs)) return "no data";
  if (dataMs > BLIND_MS) return `no data for ${spanWords(dataMs)}`;
  const lookedMs = age(job.looked_at, nowMs);
  if (lookedMs > BLIND_MS) return Number.isFinite(lookedMs) ? `no look for ${spanWords(lookedMs)}` : "no look yet";
  if (job.state === "unknown" && job.nodes_reporting > 0) return "the newest look failed";
  const isUnheard = job.state === "silent" || job.state === "unknown";
  return isUnheard && row.symptom !== "silence" ? `no data for ${spanWords(dataMs)}` : null;
}

/** A job's state as far as anybody can say it at `nowMs`, and why not further: "" where the word says all. */
export function stateNow(job: JobRow, nowMs: number): { state: JobState; why: string } {
  if (job.state === "ended" || job.state === "silent") return { state: job.state, why: "" };
  if (job.state === "unknown" && job.nodes_reporting === 0) {
    const heardMs = age(job.last_data_at, nowMs);
    return { state: "unknown", why: Number.isFinite(heardMs) ? `not heard for ${spanWords(heardMs)}: see Ingest` : "" };
  }
  const lookedMs = age(job.looked_at, nowMs);
  if (lookedMs > BLIND_MS && Number.isFinite(lookedMs)) {
    return { state: "unknown", why: `not looked at for ${spanWords(lookedMs)}: does the worker of looks run?` };
  }
  return { state: job.state, why: job.state === "unknown" ? lookless(job) : "" };
}

function lookless(job: JobRow): string {
  return job.looked_at === null ? "not looked at yet: does the worker of looks run?" : "the newest look failed";
}

/** When its job was last seen: the older of the newest data and the newest look at it. */
export function lastSeenMs(row: IncidentRow, job: JobRow): number | null {
  if (job.attempt !== row.attempt) return null;
  const known = [job.last_data_at, job.looked_at].filter((at) => at !== null).map((at) => Date.parse(at));
  return known.length > 0 ? Math.min(...known) : null;
}

const SEEN: Record<IncidentRow["condition"], string> = {
  firing: "last seen happening",
  clearing: "last seen clearing",
  clear: "no longer seen",
};

/** "no data for 6 min; last seen happening 15:05:37"; null while the condition can be seen. */
export function blindWords(row: IncidentRow, job: JobRow | undefined, nowMs: number): string | null {
  const why = whyBlind(row, job, nowMs);
  if (!why || !job) return null;
  const seen = lastSeenMs(row, job);
  return seen === null ? why : `${why}; ${SEEN[row.condition]} ${timeOfDay(seen)}`;
}

/** A resolved incident says its condition only as long as that contradicts it. */
export function showsCondition(row: IncidentRow): boolean {
  return row.state !== "resolved" || row.condition === "firing";
}

export interface Wellness {
  watched: JobRow[];
  stuck: JobRow[];
  slow: JobRow[];
  unsure: JobRow[];
  /** The oldest newest look over jobs that run; null while one of them was never looked at. */
  lookedAt: string | null;
  isWell: boolean;
}

export function wellness(jobs: readonly JobRow[], nowMs: number): Wellness {
  const watched = jobs.filter((job) => job.state !== "ended");
  const [stuck, slow] = (["stuck", "slow"] as const).map((state) => watched.filter((job) => job.state === state));
  const canBeJudged = (job: JobRow) =>
    (job.state === "running" || job.state === "idle") && age(job.looked_at, nowMs) <= BLIND_MS;
  const unsure = watched.filter((job) => ![...stuck, ...slow].includes(job) && !canBeJudged(job));
  const looks = watched.map((job) => job.looked_at);
  const lookedAt = looks.includes(null) ? null : (looks.filter((at) => at !== null).sort()[0] ?? null);
  const isWell = watched.length > 0 && stuck.length + slow.length + unsure.length === 0;
  return { watched, stuck, slow, unsure, lookedAt, isWell };
}

function age(at: string | null, nowMs: number): number {
  return at === null ? Number.POSITIVE_INFINITY : nowMs - Date.parse(at);
}
