/* Who a rank is in a diagnosis: blamed, one of a tie of which one started it, one that only waits, or none of these. Pure. */

import type { Finding } from "../types";

export type Role = "culprit" | "suspect" | "victim" | "other";
export const ROLES: readonly Role[] = ["culprit", "suspect", "victim", "other"];

/** Ranks that the evidence cannot tell apart, of which one started it; [] when there are not several. */
export function tiedRanks(finding: Finding | null | undefined): number[] {
  const ranks = new Set(finding?.tied.flatMap((subject) => subject.ranks));
  return ranks.size > 1 ? [...ranks].sort((a, b) => a - b) : [];
}

export function rolesOf(
  culprits: Iterable<number>,
  tied: Iterable<number>,
  victims: Iterable<number>,
): (rank: number) => Role {
  const [blamed, suspected, waiting] = [new Set(culprits), new Set(tied), new Set(victims)];
  return (rank) =>
    blamed.has(rank) ? "culprit" : suspected.has(rank) ? "suspect" : waiting.has(rank) ? "victim" : "other";
}
