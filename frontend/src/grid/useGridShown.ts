/* The grid of the moment shown: the newest, or what is stored of an earlier one laid over it; and what its head says. */

import { useMemo } from "preact/hooks";
import { timeOfDay, zoneLabel } from "../state/clock";
import type { GridColumns } from "../types";
import { gridThen, type Past } from "./past";
import type { Scrub } from "./scrub";

export interface GridShown {
  columns: GridColumns | null;
  /** Of an earlier moment, which; "" of the newest. */
  when: string;
}

export function useGridShown(scrub: Scrub, newest: GridColumns | null): GridShown {
  const [at, past, failure] = [scrub.at.value, scrub.past.value, scrub.failure.value];
  const shown = at === null ? null : failure ? NOTHING : past;
  const columns = useMemo(() => (newest && shown ? gridThen(newest, shown) : newest), [newest, shown]);
  return { columns, when: at === null ? "" : whenWords(at, shown) };
}

const NOTHING: Past = {
  atMs: 0,
  isSettled: false,
  state: new Uint8Array(),
  note: new Uint16Array(),
  seenMs: new Uint32Array(),
  states: [],
  notes: [],
  diagnosis: null,
  said: "",
};

/** While the moment is being read an older picture stands there: then that is said. */
export function whenWords(atMs: number, past: Past | null): string {
  if (past === NOTHING) return "of this moment nothing could be read";
  if (past === null) return `${timeOfDay(atMs)} is being read; this is the newest`;
  const of = `as at ${timeOfDay(past.atMs)} ${zoneLabel()}`;
  if (Math.abs(past.atMs - atMs) >= 1) return of;
  return past.diagnosis === null ? of : `${of} · blamed as by diagnosis ${past.diagnosis}`;
}
