/* The REST API of destinations, deliveries and tickets. */

import { ApiError, ask } from "../api";

export interface DestinationSetting {
  name: string;
  words: string;
  is_secret: boolean;
  is_needed: boolean;
  /** What holds when it is left empty. */
  usual: string;
  /** What it may be; anything where there are none. */
  choices: string[];
}

export interface DestinationKind {
  name: string;
  title: string;
  settings: DestinationSetting[];
  /** Which templates it shows: of "title" and "body". */
  templates: string[];
}

export interface DestinationRow {
  id: number;
  /** Whoever changes it says which one was seen. */
  version: number;
  team: string;
  name: string;
  kind: string;
  title: string;
  settings: Record<string, string>;
  has_secrets: boolean;
  severity_min: "low" | "medium" | "high";
  title_template: string;
  body_template: string;
  enabled: boolean;
  /** Why it was switched off by itself. */
  paused_why: string;
  /** Why nothing will be sent there as it is set up, where that shows before it is tried. */
  not_sent_why: string;
  /** Until when nothing is sent after a failure. */
  not_before: string | null;
  n_failures: number;
  n_waiting: number;
  n_sent: number;
  n_dead: number;
  n_refused: number;
  /** Incidents open when it was made that it was not told of then. */
  n_left_out: number;
  hook_path: string;
  n_hooks: number;
  hooks_refused: Record<string, number>;
  may_change: boolean;
}

export interface DeliveryRow {
  id: number;
  destination: number;
  destination_name: string;
  incident: number | null;
  headline: string;
  verb: string;
  state: "waiting" | "sent" | "dead" | "skipped";
  made_at: string;
  due_at: string;
  done_at: string | null;
  n_attempts: number;
  n_merged: number;
  said: string;
  replay_of: number | null;
  may_replay: boolean;
}

export interface TicketRow {
  destination: number;
  destination_name: string;
  kind: string;
  external_id: string;
  url: string;
  told_at: string | null;
  /** Why it has not been told of yet; empty where it has. */
  untold_why: string;
  remote_state: string;
  /** Their own name of that state. */
  remote_word: string;
  remote_assignee: string;
  /** When it last changed there. */
  remote_at: string | null;
  seen_at: string | null;
  /** It could not be seen since; null where it is known, or there is nothing to know. */
  unknown_since: string | null;
  unknown_why: string;
  /** Closed there, not here. */
  differs: boolean;
}

export interface DestinationsAnswer {
  destinations: DestinationRow[];
  kinds: DestinationKind[];
  /** Those the user may make destinations for. */
  teams: string[];
}

export interface DestinationForm {
  name: string;
  kind: string;
  settings: Record<string, string>;
  severity_min: string;
  title_template: string;
  body_template: string;
  team?: string;
}

export interface TemplatePreview {
  title: string;
  lines: string[];
  /** Of which incident; null: an example. */
  incident: number | null;
  /** Name → what it stands for. */
  names: Record<string, string>;
  usual: { title_template: string; body_template: string };
}

export interface DestinationChange {
  at: string;
  actor: string;
  actor_kind: string;
  act: "made" | "changed" | "removed";
  /** Names of what is different now. */
  changed: string[];
}

export const readDestinations = () => ask<DestinationsAnswer>("destinations");
export const readDeliveries = (query: string) =>
  ask<{ deliveries: DeliveryRow[]; older: number | null }>(`deliveries${query}`);
export const readTickets = (incident: number) => ask<{ tickets: TicketRow[] }>(`incidents/${incident}/tickets`);
/** `key`: one for each form, so that pressing again after no answer came makes no second one. */
export const makeDestination = (form: DestinationForm, key: string) =>
  ask<unknown>("destinations", "POST", form, { "Idempotency-Key": key });
/** 409 (`overtakenBy`): somebody changed it since `version`. */
export const changeDestination = (id: number, version: number, changes: object) =>
  ask<unknown>(`destinations/${id}`, "PATCH", { ...changes, version });
export const removeDestination = (id: number, version: number) =>
  ask<unknown>(`destinations/${id}`, "DELETE", undefined, { "If-Match": `"${version}"` });
export const previewTemplates = (texts: { title_template: string; body_template: string }) =>
  ask<TemplatePreview>("destinations/preview", "POST", texts);
export const readHistory = (id: number) => ask<{ changes: DestinationChange[] }>(`destinations/${id}`);
export const testDestination = (id: number) => ask<unknown>(`destinations/${id}/test`, "POST", {});
export const replayDelivery = (id: number) => ask<unknown>(`deliveries/${id}/replay`, "POST", {});

/** What somebody else changed meanwhile, in words, and the version it is now; null when that is not what was answered. */
export function overtakenBy(error: unknown): { words: string; version: number } | null {
  if (!(error instanceof ApiError) || (error.status !== 409 && error.status !== 412)) return null;
  const { destination, changes } = error.answer as { destination?: DestinationRow; changes?: DestinationChange[] };
  if (!destination || !changes) return null;
  const names = [...new Set(changes.flatMap((one) => one.changed))].map((name) => name.replaceAll("_", " "));
  const what = names.length > 0 ? ` (${names.join(", ")})` : "";
  return { words: `${changes[0]?.actor ?? "Somebody"} changed it meanwhile${what}.`, version: destination.version };
}

/** How a ticket stands in the other system, in words; empty where nothing is known of it. */
export function standsThere(row: TicketRow): string {
  const word = row.remote_word.toLowerCase();
  const own = word && word !== row.remote_state && `${word}ed` !== row.remote_state ? ` (${row.remote_word})` : "";
  const words: Record<string, string> = {
    gone: "deleted there, or not to be seen",
    moved: "moved elsewhere",
  };
  return row.remote_state && (words[row.remote_state] ?? `${row.remote_state} there${own}`);
}

/** How a destination does, in words: off, failing, in order, or never used. */
export function standing(row: DestinationRow): { word: string; isBad: boolean } {
  if (!row.enabled) return { word: row.paused_why ? `switched off: ${row.paused_why}` : "switched off", isBad: true };
  if (row.n_failures > 0) return { word: `failing, ${row.n_failures} in a row`, isBad: true };
  if (row.n_sent + row.n_dead + row.n_waiting === 0) return { word: "nothing sent yet", isBad: false };
  if (row.n_sent === 0 && row.n_dead > 0) return { word: "nothing has arrived", isBad: true };
  return { word: "in order", isBad: false };
}
