/*
 * The REST API as the page uses it: one function per question, one error class that keeps the server's sentence.
 * Writes carry the CSRF token and an idempotency key, so that a repeated click or a retried request acts once.
 */

import type { StreamPlace } from "./live/apply";
import type { IncidentRow, IngestRow, JobRow, TimelineRow } from "./live/rows";
import type { PackedGrid } from "./live/topology";
import type {
  Alternative,
  Diagnosis,
  GridColumns,
  JobSettings,
  Lanes,
  Look,
  NodeRow,
  PlotlyFigure,
  Revision,
  Standing,
  TokenRow,
} from "./types";

export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly answer: Record<string, unknown>,
  ) {
    super(message);
  }
}

export interface Session {
  user: string;
  name: string;
  /** The highest; null for somebody without a team. */
  role: "viewer" | "responder" | "admin" | null;
  roles: Record<string, string>;
  csrf: string;
  server_at: string;
  version: string;
  demo: boolean;
}

export interface NowAnswer {
  stream: StreamPlace;
  /** One per team of the user; the first is `stream`. */
  streams: StreamPlace[];
  server_at: string;
  jobs: JobRow[];
  incidents: IncidentRow[];
  ingest: IngestRow;
}

export type Facet = "state" | "symptom" | "severity" | "job" | "who" | "node" | "rack" | "cluster" | "team";
export type Facets = Record<Facet, Record<string, number>>;

export interface IncidentsAnswer {
  stream: StreamPlace;
  server_at: string;
  total: number;
  /** Cursors of the pages before and after this one; null at the ends. */
  newer: string | null;
  older: string | null;
  incidents: IncidentRow[];
  facets: Facets;
}

export interface IncidentAnswer {
  stream: StreamPlace;
  server_at: string;
  incident: IncidentRow;
  job: JobRow;
  diagnosis: Diagnosis | null;
  revisions: Revision[];
  timeline: TimelineRow[];
  /** Entries older than those. */
  timeline_left_out?: number;
  may: string[];
  previous: number | null;
  next: number | null;
  diagnosis_id: number | null;
  /** Since when a diagnosis is asked for and not there yet. */
  asked_at: string | null;
  /** False while it is kept from paging people: an idle job, until its stacks are there. */
  pages: boolean;
  /** What is wanted from the nodes: "stacks". */
  dumps_wanted: string[];
  /** Earlier incidents whose culprits sat where this one's sit, newest first. */
  seen_before: SeenBefore[];
  /** What follows from this incident, newest first. */
  attached: IncidentRow[];
  /** Who else has it open. */
  looking: string[];
  review: Review | null;
  /** Who may be assigned. */
  assignable: string[];
}

/** What somebody found out afterwards. */
export interface Review {
  at: string;
  actor: string;
  alarm: "real" | "noise" | "false";
  verdict: "right" | "partly" | "wrong" | "unknown";
  cause: string;
  component: string;
  culprits: number[];
  node: string;
}

export interface SeenBefore {
  incident: number;
  at: string;
  /** What both share: "GPU 3 of node-1, NIC eth0 of node-1". */
  what: string;
  ranks: number[];
}

export interface WhyNotAnswer {
  rank: number;
  /** The diagnosis asked about; null when there is none yet. */
  diagnosis_id: number | null;
  alternative: Alternative;
}

export interface ActAnswer {
  incident: IncidentRow;
  entry: TimelineRow;
}

export interface JobAnswer {
  job: JobRow;
  looks: Look[];
  incidents: IncidentRow[];
  /** Of "configure", "pause", "trigger". */
  may: string[];
  pause: Pause | null;
  wanted_pace: WantedPace | null;
}

/** Somebody said that the job was changed on purpose: its pace since then is the normal one. */
export interface WantedPace {
  attempt: number;
  reason: string;
  since: string;
  declared_at: string;
  declared_by: string;
}

/** A time in which nothing is expected of a job. */
export interface Pause {
  id: number;
  attempt: number;
  reason: string;
  declared_at: string;
  declared_by: string;
  until: string;
}

export type Act =
  | "acknowledge"
  | "unacknowledge"
  | "resolve"
  | "reopen"
  | "assign"
  | "attach"
  | "detach"
  | "comments"
  | "diagnose"
  | "review";

const ANSWER_MS = 20_000;

/** Proves to the server that a write comes from this page. */
export let csrf = "";
/** Server's clock minus ours, so that ages are right on a laptop whose clock is not. */
export let clockSkewMs = 0;

export const readSession = async (): Promise<Session> => {
  const session = await ask<Session>("session");
  csrf = session.csrf;
  return session;
};
export const readNow = () => ask<NowAnswer>("now");
export const readIncidents = (query: string) => ask<IncidentsAnswer>(`incidents${query}`);
export const readIncident = (number: number) => ask<IncidentAnswer>(`incidents/${number}`);
export const readIncidentTopology = (number: number) => ask<PackedGrid>(`incidents/${number}/topology`);
export const readLanes = (number: number, query = "") => ask<Lanes>(`incidents/${number}/lanes${query}`);
export const readStanding = (number: number, query = "") => ask<Standing>(`incidents/${number}/standing${query}`);
/** A revision of the diagnosis as the server wrote it, number by number. */
export const readDiagnosisText = async (number: number, revision: number) =>
  (await answered(`incidents/${number}/diagnoses/${revision}`)).text();
export const readWhyNot = (number: number, rank: number) =>
  ask<WhyNotAnswer>(`incidents/${number}/why-not?rank=${rank}`);
export const readOlderTimeline = (number: number, before: number) =>
  ask<IncidentAnswer>(`incidents/${number}?timeline_before=${before}`);
export const readJob = (id: number) => ask<JobAnswer>(`jobs/${id}`);
export const readJobGrid = (id: number) => ask<GridColumns>(`jobs/${id}/grid`);
export const readThroughput = (id: number) => ask<PlotlyFigure>(`jobs/${id}/figures/throughput`);
export const readJobSettings = (id: number) => ask<JobSettings>(`jobs/${id}/settings`);
/** All of them or none; null puts one back to its default. 409 (`Overtaken`): somebody changed one since `version`. */
export const changeJobSettings = (
  id: number,
  changes: Record<string, number | null>,
  reason: string,
  version: number,
) => ask<JobSettings>(`jobs/${id}/settings`, "PATCH", { changes, reason, version });
export const declarePause = (id: number, reason: string, minutes: number) =>
  ask<{ pause: Pause | null }>(`jobs/${id}/pause`, "POST", { reason, minutes });
export const endPause = (id: number) => ask<{ pause: Pause | null }>(`jobs/${id}/pause`, "DELETE");
export const declareWantedPace = (id: number, reason: string) =>
  ask<{ wanted_pace: WantedPace }>(`jobs/${id}/wanted-pace`, "POST", { reason });
export const reportProblem = (id: number, note: string, since?: string) =>
  ask<ActAnswer & { opened: boolean }>(`jobs/${id}/triggers`, "POST", since ? { note, since } : { note });
/** `let_go`: what retention let go of, ever, by kind. */
export const readNodes = () => ask<{ nodes: NodeRow[]; let_go: Record<string, number> }>("nodes");
export const readTokens = () => ask<{ tokens: TokenRow[]; teams: string[] }>("tokens");
/** `team` must be named by who administers several. */
export const createToken = (label: string, team?: string) =>
  ask<{ token: string }>("tokens", "POST", team ? { label, team } : { label });
export const deleteToken = (id: number) => ask<unknown>(`tokens/${id}`, "DELETE");
export const act = (number: number, verb: Act, body: object) =>
  ask<ActAnswer>(`incidents/${number}/${verb}`, "POST", body);

/** Asks for a file and hands it to the browser as a download; the server's sentence where it refuses. */
export async function takeAway(path: string, name: string): Promise<void> {
  const address = URL.createObjectURL(await (await answered(path, FILE_MS)).blob());
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), FILE_MS);
}

const FILE_MS = 120_000;

/** The answer to a GET, of whatever kind. */
export async function answered(path: string, limitMs = ANSWER_MS): Promise<Response> {
  const how = { ...request("GET"), signal: AbortSignal.timeout(limitMs) };
  const response = await fetch(`/api/v1/${path}`, how).catch((cause) => {
    throw notAnswered("GET", cause);
  });
  if (!response.ok) throw refusal(response.status, await response.json().catch(() => ({})));
  return response;
}

function refusal(status: number, answer: Record<string, unknown>): ApiError {
  const which = fieldWords(answer.fields);
  const sentence = which || String(answer.error ?? answer.detail ?? `The server answered ${status}.`);
  return new ApiError(status, String(answer.code ?? ""), sentence, answer);
}

/** The first refused field and why: "Matchers 1, values 1: Ensure this field has no more than 128 characters." */
export function fieldWords(fields: unknown): string {
  let at = fields;
  const way: string[] = [];
  for (let depth = 0; depth < 8 && typeof at === "object" && at !== null; depth++) {
    if (Array.isArray(at) && typeof at[0] === "string") at = at[0];
    else {
      // Refusals of a list's items come as a list, in which those that are right are empty.
      const wrong = Object.entries(at).find(([, one]) => one && Object.keys(one).length > 0);
      if (!wrong) return "";
      way.push(Array.isArray(at) ? String(Number(wrong[0]) + 1) : wrong[0].replaceAll("_", " "));
      at = wrong[1];
    }
  }
  if (typeof at !== "string" || way.length === 0) return "";
  const where = way.filter((part) => part !== "non field errors").join(" ");
  return where ? `${where.charAt(0).toUpperCase()}${where.slice(1)}: ${at}` : at;
}

/** `more`: further headers; an Idempotency-Key there makes a repeated request the same one. */
export async function ask<T>(
  path: string,
  method = "GET",
  body?: object,
  more: Record<string, string> = {},
): Promise<T> {
  const asked = request(method, body);
  const how = { ...asked, headers: { ...asked.headers, ...more } };
  const response = await fetch(`/api/v1/${path}`, how).catch((cause) => {
    throw notAnswered(method, cause);
  });
  if (response.status === 401) location.assign(`/signin?next=${encodeURIComponent(location.pathname)}`);
  if (!response.ok) throw refusal(response.status, await response.json().catch(() => ({})));
  // A server that dies amid its answer leaves half of one behind a good status: that is no answer.
  const read = response.status === 204 ? Promise.resolve({}) : response.json();
  const answer = await read.catch((cause) => {
    throw notAnswered(method, cause);
  });
  if (typeof answer.server_at === "string") clockSkewMs = Date.parse(answer.server_at) - Date.now();
  return answer as T;
}

/** What the browser calls "Failed to fetch": in words, and with what to do about it. Status 0: nobody answered. */
function notAnswered(method: string, cause: unknown): ApiError {
  const isLate = cause instanceof Error && cause.name === "TimeoutError";
  const what = isLate ? `The server did not answer within ${ANSWER_MS / 1000} s.` : "The server cannot be reached.";
  const then =
    method === "GET"
      ? "It is asked again by itself."
      : "Whether this was done is not known: when the mark at the top says Live again, see whether it shows here, else do it again.";
  return new ApiError(0, "unreachable", `${what} ${then}`, {});
}

function request(method: string, body?: object): RequestInit {
  const headers: Record<string, string> = { Accept: "application/json" };
  // A server that stands still keeps its connections: without a limit the page would wait for ever, and ask no more.
  if (method === "GET") return { headers, credentials: "same-origin", signal: AbortSignal.timeout(ANSWER_MS) };
  headers["Content-Type"] = "application/json";
  headers["X-CSRFToken"] = csrf;
  headers["Idempotency-Key"] = randomKey();
  return { method, headers, credentials: "same-origin", body: body && JSON.stringify(body) };
}

/** 128 random bits; crypto.randomUUID exists on secure origins only, and a first look is often plain HTTP. */
export function randomKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
