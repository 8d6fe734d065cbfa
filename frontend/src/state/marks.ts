/*
 * The rows of a list that are marked for an act on many. Marks are incidents' numbers and stay while rows move; what has
 * left the list is marked no longer.
 */

import { useState } from "preact/hooks";
import type { IncidentRow } from "../live/rows";

export interface Marks {
  rows: IncidentRow[];
  has: (number: number) => boolean;
  toggle: (number: number) => void;
  all: () => void;
  clear: () => void;
}

export function toggled(marked: ReadonlySet<number>, number: number): Set<number> {
  const next = new Set(marked);
  if (!next.delete(number)) next.add(number);
  return next;
}

export function useMarks(rows: readonly IncidentRow[]): Marks {
  const [marked, setMarked] = useState<ReadonlySet<number>>(new Set());
  const shown = rows.filter((row) => marked.has(row.number));
  return {
    rows: shown,
    has: (number) => marked.has(number),
    toggle: (number) => setMarked((old) => toggled(old, number)),
    all: () => setMarked(new Set(shown.length === rows.length ? [] : rows.map((row) => row.number))),
    clear: () => setMarked(new Set()),
  };
}
