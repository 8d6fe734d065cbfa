/*
 * The grid of an earlier moment as the server sends it: console/incidents/pictures/past.py has the table of its bytes. Who is where
 * comes from the newest grid, how they were from here.
 */

import { answered, ask } from "../api";
import type { GridColumns } from "../types";

export interface Past {
  /** Unix ms. */
  atMs: number;
  /** Nothing that may still come changes it. */
  isSettled: boolean;
  /** Of each rank: a place in `states`, a place in `notes`, ms since it was last seen or NEVER. */
  state: Uint8Array;
  note: Uint16Array;
  seenMs: Uint32Array;
  states: string[];
  notes: string[];
  /** The revision of the diagnosis that blames; null: it blames nobody then. */
  diagnosis: number | null;
  /** What holds for all ranks; "" where nothing does. */
  said: string;
}

export interface Moment {
  kind: "began" | "symptom" | "trigger" | "diagnosis" | "act" | "dumps";
  at_ns: number;
  word: string;
  number: number;
}

/** The minutes a scrubber covers. */
export interface Moments {
  from_ns: number;
  to_ns: number;
  first_ns: number;
  newest_ns: number;
  is_live: boolean;
  held: { from_ns: number; to_ns: number }[];
  moments: Moment[];
  omitted: number;
  /** The first of those after the minutes, and how many these are. */
  after: Moment[];
  later: number;
}

/** "incidents/12" or "jobs/3". */
export type Source = string;

const HEAD_BYTES = 24;
export const NEVER = 0xffffffff;

export class BadPast extends Error {}

export const readMoments = (source: Source) => ask<Moments>(`${source}/moments`);

export async function readPast(source: Source, atMs: number, revision: number | null): Promise<Past> {
  const blamed = revision === null ? "" : `&revision=${revision}`;
  // As text: a number of this size would be rounded.
  const response = await answered(`${source}/grid/at?at_ns=${Math.round(atMs)}000000${blamed}`);
  return decodePast(await response.arrayBuffer());
}

/** Throws BadPast for anything else than such a grid. */
export function decodePast(body: ArrayBuffer): Past {
  const view = new DataView(body);
  const magic = body.byteLength < HEAD_BYTES ? "" : String.fromCharCode(...new Uint8Array(body, 0, 4));
  if (magic !== "DGSP" || view.getUint8(4) !== 1) throw new BadPast("This is no grid of an earlier moment.");
  const [n, m] = [view.getUint32(16, true), view.getUint32(20, true)];
  if (body.byteLength !== HEAD_BYTES + 7 * n + m) throw new BadPast("The grid of this moment is cut off.");
  const notesAt = HEAD_BYTES + 4 * n;
  const tail = JSON.parse(new TextDecoder().decode(new Uint8Array(body, HEAD_BYTES + 7 * n, m)));
  return {
    atMs: Number(view.getBigUint64(8, true) / 1_000_000n),
    isSettled: (view.getUint8(5) & 1) === 1,
    seenMs: new Uint32Array(body, HEAD_BYTES, n),
    note: new Uint16Array(body, notesAt, n),
    state: new Uint8Array(body, notesAt + 2 * n, n),
    states: tail.states,
    notes: tail.notes,
    diagnosis: tail.diagnosis,
    said: tail.said,
  };
}

/** The grid as it was then. Ranks it does not speak of are unknown; the arrays of places stay the same ones. */
export function gridThen(columns: GridColumns, past: Past): GridColumns {
  const code = new Map(columns.states.map((state, i) => [state, i]));
  const unknown = code.get("unknown") ?? 0;
  const codes = past.states.map((state) => code.get(state) ?? unknown);
  const of = <T>(value: (rank: number) => T, none: T) =>
    columns.rank.map((rank) => (rank < past.state.length ? value(rank) : none));
  return {
    ...columns,
    is_past: true,
    at: new Date(past.atMs).toISOString(),
    state: of((rank) => codes[past.state[rank]] ?? unknown, unknown),
    note: of((rank) => past.notes[past.note[rank]] ?? "", "not known then"),
    last_seen_ms_ago: of<number | null>((rank) => (past.seenMs[rank] === NEVER ? null : past.seenMs[rank]), null),
  };
}
