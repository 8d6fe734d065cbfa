/* Who a rank is in a diagnosis: blamed, one of a tie of which one started it, one that only waits, or none of these. Pure. */

import type { Finding } from "../types";

export type Role = "culprit" | "suspect" | "victim" | "other";
export const ROLES: readonly Role[] = ["culprit", "suspect", "victim", "other"];

/** Ranks that may have started it: the culprits and those that the evidence cannot tell from them; of a tie that blames nobody
 * also whom it is about. As Finding.suspects in rca/findings.py. */
export function suspectsOf(finding: Finding | null | undefined): number[] {
  if (!finding) return [];
  const told = new Set([...finding.culprits, ...finding.tied.flatMap((subject) => subject.ranks)]);
  if (finding.tied.length > 0 && finding.culprits.length === 0)
    for (const rank of finding.subject.ranks) told.add(rank);
  return [...told].sort((a, b) => a - b);
}

export function rolesOf(
  culprits: Iterable<number>,
  suspects: Iterable<number>,
  victims: Iterable<number>,
): (rank: number) => Role {
  const [blamed, suspected, waiting] = [new Set(culprits), new Set(suspects), new Set(victims)];
  return (rank) =>
    blamed.has(rank) ? "culprit" : suspected.has(rank) ? "suspect" : waiting.has(rank) ? "victim" : "other";
}
