/* Matchers of a silence as the form edits them, and the first guess for an incident. */

import type { Facets } from "../api";
import type { Matcher } from "../handling";
import type { IncidentRow } from "../live/rows";
import { COMPONENT, inOrder, SYMPTOM } from "../state/words";

export const FIELDS: readonly (readonly [Matcher["field"], string])[] = [
  ["job", "Job"],
  ["node", "Culprit’s node"],
  ["rack", "Culprit’s rack"],
  ["cluster", "Cluster"],
  ["symptom", "Symptom"],
  ["component", "Component"],
  ["incident", "Incident"],
];

export const PLACEHOLDER: Readonly<Record<Matcher["field"], string>> = {
  job: "llama-*, …",
  node: "r1n3, r2*, …",
  rack: "r12, …",
  cluster: "north, …",
  symptom: "straggler, …",
  component: "nic, …",
  incident: "12, …",
};

/** A value, and its word where that is another. */
export type Known = readonly [value: string, word: string];

/** What may be chosen for a field; "unknown" is never silenced, and so is none of them. */
export function knownValues(field: Matcher["field"], facets: Facets | null, jobs: readonly string[]): Known[] {
  if (field === "incident") return [];
  if (field === "symptom") return Object.entries(SYMPTOM);
  if (field === "component") return Object.entries(COMPONENT).filter(([code]) => code !== "unknown");
  const found = new Set([...Object.keys(facets?.[field] ?? {}), ...(field === "job" ? jobs : [])]);
  return inOrder([...found].filter((value) => value !== "unknown")).map((value) => [value, value] as const);
}

/** Where the culprits are, if anybody is blamed; else the same trouble of the same job. */
export function guessFor(row: IncidentRow): Matcher[] {
  if (row.nodes.length > 0) return [{ field: "node", values: row.nodes, is_not: false }];
  return [
    { field: "job", values: [row.job], is_not: false },
    { field: "symptom", values: [row.symptom], is_not: false },
  ];
}

export function valuesOf(text: string): string[] {
  return text
    .split(",")
    .map((part) => part.trim())
    .filter(Boolean);
}

/** Those that say something. */
export function filled(matchers: readonly Matcher[]): Matcher[] {
  return matchers.filter((matcher) => matcher.values.length > 0);
}
