/*
 * The list of incidents in the address: which keys of the query filter it, what the server is asked, and how an
 * incident's own address remembers the list it was opened from, so that next and previous stay in it.
 */

import type { Facet } from "../api";
import { query } from "./address";

export const FACETS: readonly Facet[] = [
  "state",
  "symptom",
  "severity",
  "job",
  "who",
  "node",
  "rack",
  "cluster",
  "team",
];
const FILTERS: readonly string[] = [...FACETS, "q"];
const ASKED: readonly string[] = [...FILTERS, "cursor"];

function picked(from: URLSearchParams, keys: readonly string[]): URLSearchParams {
  const found = new URLSearchParams();
  for (const key of keys) {
    const value = from.get(key);
    if (value) found.set(key, value);
  }
  return found;
}

/** What the server is asked for the list in the address: "?state=open", or "". */
export function listQuery(): string {
  const asked = picked(query.value, ASKED);
  return asked.size > 0 ? `?${asked}` : "";
}

/** The filters alone, as a saved view keeps them: "state=open", or "". */
export function filtersOf(from: URLSearchParams): string {
  return picked(from, FILTERS).toString();
}

/** The address of an incident opened from a list with these filters. */
export function incidentHref(number: number, filters: string): string {
  return filters ? `/incidents/${number}?in=${encodeURIComponent(filters)}` : `/incidents/${number}`;
}

/** The filters of the list that the incident in the address was opened from. */
export function cameFrom(): string {
  return filtersOf(new URLSearchParams(query.value.get("in") ?? ""));
}
