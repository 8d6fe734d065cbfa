/*
 * The REST API of what people do to many incidents and beside them: bulk acts, silences, saved views, the scorecard.
 */

import { ask } from "./api";
import type { IncidentRow } from "./live/rows";

export type BulkVerb =
  | "acknowledge"
  | "unacknowledge"
  | "resolve"
  | "reopen"
  | "comment"
  | "assign"
  | "attach"
  | "detach";

export interface Outcome {
  number: number;
  incident: IncidentRow | null;
  /** Empty when it was done. */
  code: string;
  error: string;
}

export interface Matcher {
  field: "job" | "node" | "rack" | "cluster" | "symptom" | "component" | "incident";
  values: string[];
  is_not: boolean;
}

export interface SilenceRow {
  id: number;
  team: string;
  kind: "silence" | "maintenance";
  state: "in force" | "ahead" | "over";
  matchers: Matcher[];
  words: string;
  reason: string;
  starts_at: string;
  ends_at: string;
  made_by: string;
  made_at: string;
  ended_by: string;
  n_incidents: number;
  may_end: boolean;
}

export interface SilencePreview {
  words: string;
  total: number;
  incidents: IncidentRow[];
  lately: number;
  checked: number;
  /** Open incidents that were not looked at, as there are too many. */
  left_out?: number;
}

export interface NewSilence {
  matchers: Matcher[];
  minutes: number;
  reason: string;
  kind: SilenceRow["kind"];
  team?: string;
  /** ISO; now where left out. */
  starts_at?: string;
}

export interface ViewRow {
  id: number;
  name: string;
  query: string;
  shared: boolean;
  mine: boolean;
}

export interface Score {
  of: string;
  incidents: number;
  reviewed: number;
  real: number;
  noise: number;
  false_alarms: number;
  right: number;
  partly: number;
  wrong: number;
  precision: number | null;
  right_share: number | null;
  verdict_s_median: number | null;
  verdict_s_p90: number | null;
  acknowledged_s_median: number | null;
}

export interface Card {
  days: number;
  total: Score;
  rules: Score[];
  symptoms: Score[];
  left_out: number;
}

export const actOnMany = (verb: BulkVerb, rows: readonly IncidentRow[], more: Record<string, unknown> = {}) =>
  ask<{ n_done: number; outcomes: Outcome[] }>("incidents/acts", "POST", {
    verb,
    targets: rows.map(({ number, version }) => ({ number, version })),
    ...more,
  });
export const readNeighbours = (number: number, query: string) =>
  ask<{ previous: number | null; next: number | null }>(`incidents/${number}/neighbours${query}`);
export const readSilences = () => ask<{ silences: SilenceRow[]; teams: string[] }>("silences");
export const previewSilence = (matchers: Matcher[], team?: string) =>
  ask<SilencePreview>("silences/preview", "POST", team ? { matchers, team } : { matchers });
export const makeSilence = (silence: NewSilence) => ask<{ silence: SilenceRow }>("silences", "POST", silence);
export const endSilence = (id: number) => ask<{ silence: SilenceRow }>(`silences/${id}`, "DELETE");
export const readViews = () => ask<{ views: ViewRow[] }>("views");
export const saveView = (name: string, query: string, shared: boolean) =>
  ask<{ view: ViewRow }>("views", "POST", { name, query, shared });
export const deleteView = (id: number) => ask<unknown>(`views/${id}`, "DELETE");
export const readCard = (days: number) => ask<Card>(`scorecard?days=${days}`);
