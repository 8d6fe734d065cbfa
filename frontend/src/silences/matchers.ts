/* Matchers of a silence as the form edits them, and the first guess for an incident. */

import type { Matcher } from "../handling";
import type { IncidentRow } from "../live/rows";

export const FIELDS: readonly (readonly [Matcher["field"], string])[] = [
  ["job", "Job"],
  ["node", "Culprit’s node"],
  ["rack", "Culprit’s rack"],
  ["cluster", "Cluster"],
  ["symptom", "Symptom"],
  ["component", "Component"],
  ["incident", "Incident"],
];

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
