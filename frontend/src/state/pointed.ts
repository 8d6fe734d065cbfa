/*
 * The ranks under the pointer, shared by path, grid and lanes: what one picture points at, the others mark. Ranks that
 * are selected are another matter: those are in the URL.
 */

import { signal } from "@preact/signals";

const NONE: ReadonlySet<number> = new Set();
export const pointedRanks = signal(NONE);

export function pointAt(ranks: readonly number[]): void {
  const before = pointedRanks.value;
  if (before.size === ranks.length && ranks.every((rank) => before.has(rank))) return;
  pointedRanks.value = ranks.length > 0 ? new Set(ranks) : NONE;
}
