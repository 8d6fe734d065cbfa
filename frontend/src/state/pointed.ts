/*
 * The ranks under the pointer, shared by path, grid and lanes: what one picture points at, the others mark. Ranks that
 * are selected are another matter: those are in the URL.
 */

import { signal } from "@preact/signals";

export const pointedRanks = signal<readonly number[]>([]);

const NONE: readonly number[] = [];

export function pointAt(ranks: readonly number[]): void {
  const before = pointedRanks.value;
  if (before.length === ranks.length && before.every((rank, n) => rank === ranks[n])) return;
  pointedRanks.value = ranks.length > 0 ? ranks : NONE;
}
