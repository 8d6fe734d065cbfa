/* The REST API of API tokens and of the audit, for administrators. */

import { ask } from "../api";

export interface ApiTokenRow {
  id: number;
  label: string;
  team: string;
  role: Role;
  /** Acts it is narrowed to; empty: all that its role may. */
  scopes: string[];
  /** rotated: another took its place, and it still works for a while. */
  state: "live" | "rotated" | "expired" | "revoked";
  made_at: string;
  made_by: string;
  expires_at: string | null;
  /** To the minute. */
  last_used_at: string | null;
  rotated_from: number | null;
  /** The token that asked for it; null: a person, or a command on the server. */
  made_with: number | null;
  /** Other good tokens that end when this one is revoked. */
  n_taken_along: number;
}

export type Role = "viewer" | "responder" | "admin";

export interface ApiTokensAnswer {
  tokens: ApiTokenRow[];
  /** How many more there are: they ended lately. */
  left_out: number;
  teams: string[];
  /** What each role may do beyond looking. */
  scopes: Record<Role, string[]>;
}

export interface NewApiToken {
  label: string;
  role: Role;
  scopes: string[];
  days: number;
  team?: string;
}

/** `token` is the secret, shown this once. */
interface Made {
  api_token: ApiTokenRow;
  token: string;
}

export interface AuditRow {
  id: number;
  at: string;
  actor: string;
  actor_kind: string;
  words: string;
  act: string;
  subject: string;
  address: string;
  request_id: string;
}

export interface AuditAnswer {
  entries: AuditRow[];
  newer: number | null;
  older: number | null;
}

export const readApiTokens = () => ask<ApiTokensAnswer>("api-tokens");
export const makeApiToken = (wanted: NewApiToken) => ask<Made>("api-tokens", "POST", wanted);
export const rotateApiToken = (id: number, grace_minutes: number) =>
  ask<Made>(`api-tokens/${id}/rotate`, "POST", { grace_minutes });
export const revokeApiToken = (id: number) => ask<unknown>(`api-tokens/${id}`, "DELETE");
export const readAudit = (query: string) => ask<AuditAnswer>(`audit${query}`);
