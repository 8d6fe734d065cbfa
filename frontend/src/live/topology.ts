/*
 * The topology grid kept current: fetched once, then changed by binary frames of the socket. The layout of a frame is the
 * table in console/incidents/pictures/topology_frames.py. A frame that does not go on from what is shown makes the page fetch the
 * grid anew; so does half a minute, as frames do not tell when each rank was seen last.
 */

import { signal } from "@preact/signals";
import type { GridColumns } from "../types";

const DELTA = 1;
const ALL = 2;
const AGE = 3;
const VERSION = 1;
const HEAD_BYTES = 24;
const RETRY_MS = 2000;
/** Of frames beyond these the grid is fetched anew, as the next does not go on from it. */
const WAITING_MAX = 64;

/** Grids that the server says nobody draws any more: number of the incident → when drawn, and when that was said; unix ms here. */
export const oldGrids = signal<Readonly<Record<number, { drawnAt: number; saidAt: number }>>>({});
const SAID_MS = 4000;

/** How old the incident's grid is, ms, where the server has just said that it is old; null else. */
export function ageOfGrid(number: number, now: number): number | null {
  const old = oldGrids.value[number];
  return old && now - old.saidAt < SAID_MS ? now - old.drawnAt : null;
}

/** A column of texts, each text once. */
interface Numbered {
  texts: string[];
  at: number[];
}

type Column<T> = T extends string[] ? Numbered | T : T;

export interface StreamPlace {
  name: string;
  epoch: string;
  offset: number;
}

/** The grid as the server packs it. */
export type PackedGrid = { [K in keyof GridColumns]: Column<GridColumns[K]> } & { note: Numbered; stream: StreamPlace };

export interface LiveGrid {
  columns: GridColumns;
  place: StreamPlace;
  /** What the notes are, by their number in frames. */
  texts: string[];
}

/** A frame that is none, or goes on from something else. */
export class MissedFrame extends Error {}

export function unpackGrid(packed: PackedGrid): LiveGrid {
  const { stream, ...columns } = packed;
  const plain = Object.fromEntries(Object.entries(columns).map(([name, column]) => [name, unnumbered(column)]));
  return { columns: plain as unknown as GridColumns, place: stream, texts: [...packed.note.texts] };
}

function unnumbered(column: unknown): unknown {
  if (typeof column !== "object" || column === null || !("texts" in column)) return column;
  const { texts, at } = column as Numbered;
  return at.map((place) => texts[place]);
}

/** Which incident a frame is of; -1 when it is no frame of a grid. */
export function incidentOf(frame: ArrayBuffer): number {
  return frame.byteLength >= HEAD_BYTES ? new DataView(frame).getUint32(12, true) : -1;
}

/** `grid` after `frame`, with new `columns`, `state` and `note`; all else is shared. Throws MissedFrame. */
export function applyFrame(grid: LiveGrid, frame: ArrayBuffer): LiveGrid {
  const head = readHead(frame);
  const { kind, epoch, offset, n } = head;
  if (epoch !== grid.place.epoch) throw new MissedFrame(`epoch ${epoch}`);
  if (kind === DELTA && offset !== grid.place.offset + 1) throw new MissedFrame(`offset ${offset}`);
  if (kind === ALL && n !== grid.columns.rank.length) throw new MissedFrame(`${n} ranks`);
  const ranks = kind === DELTA ? new Uint32Array(frame, HEAD_BYTES, n) : null;
  const notesAt = HEAD_BYTES + (ranks ? 4 * n : 0);
  const notes = new Uint32Array(frame, notesAt, n);
  const states = new Uint8Array(frame, notesAt + 4 * n, n);
  const fresh = readTexts(new Uint8Array(frame, notesAt + 5 * n));
  const texts = ranks ? [...grid.texts, ...fresh] : fresh;
  const state = grid.columns.state.slice();
  const note = grid.columns.note.slice();
  const [nRanks, nStates] = [state.length, grid.columns.states.length];
  for (let i = 0; i < n; i++) {
    const rank = ranks ? ranks[i] : i;
    if (rank >= nRanks || states[i] >= nStates || notes[i] >= texts.length) throw new MissedFrame(`rank ${rank}`);
    state[rank] = states[i];
    note[rank] = texts[notes[i]];
  }
  return { columns: { ...grid.columns, state, note }, place: { ...grid.place, offset }, texts };
}

function readTexts(tail: Uint8Array): string[] {
  let found: unknown;
  try {
    found = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(tail));
  } catch {
    throw new MissedFrame("texts that cannot be read");
  }
  if (!Array.isArray(found) || !found.every((text) => typeof text === "string")) throw new MissedFrame("no texts");
  return found;
}

interface Head {
  kind: number;
  epoch: string;
  offset: number;
  n: number;
}

function readHead(frame: ArrayBuffer): Head {
  if (frame.byteLength < HEAD_BYTES) throw new MissedFrame("no frame of a grid");
  const view = new DataView(frame);
  const [kind, n, m] = [view.getUint8(0), view.getUint32(16, true), view.getUint32(20, true)];
  const perRank = kind === DELTA ? 9 : kind === ALL ? 5 : 0;
  if (!perRank || view.getUint8(1) !== VERSION || frame.byteLength !== HEAD_BYTES + perRank * n + m)
    throw new MissedFrame("no frame of a grid");
  return { kind, epoch: String(view.getUint32(4, true)), offset: view.getUint32(8, true), n };
}

export interface FeedOptions {
  number: number;
  fetchGrid: () => Promise<PackedGrid>;
  /** Subscribes at `place`: called after each fetch. */
  subscribe: (feed: TopologyFeed) => void;
  onColumns: (columns: GridColumns) => void;
}

/** One incident's grid: `load` fetches it, `take` applies a frame. */
export class TopologyFeed {
  /** The server sends no frames of it (too many streams are followed), so it is fetched. */
  isRefused = false;
  private grid: LiveGrid | null = null;
  private loading: Promise<void> | null = null;
  /** Frames that came while the grid was on its way: it may be older than they are. */
  private waiting: ArrayBuffer[] = [];
  private retry: ReturnType<typeof setTimeout> | undefined;
  private isStopped = false;

  constructor(private readonly options: FeedOptions) {}

  get place(): StreamPlace | null {
    return this.grid?.place ?? null;
  }

  load(): Promise<void> {
    this.isStopped = false;
    this.loading ??= this.fetch().finally(() => {
      this.loading = null;
    });
    return this.loading;
  }

  take(frame: ArrayBuffer): void {
    if (incidentOf(frame) !== this.options.number) return;
    if (new DataView(frame).getUint8(0) === AGE) {
      const now = Date.now();
      const drawnAt = now - new DataView(frame).getUint32(16, true);
      oldGrids.value = { ...oldGrids.value, [this.options.number]: { drawnAt, saidAt: now } };
      return;
    }
    if (this.loading) {
      if (this.waiting.length < WAITING_MAX) this.waiting.push(frame);
      return;
    }
    if (!this.grid) return;
    try {
      this.show(applyFrame(this.grid, frame));
    } catch (error) {
      if (!(error instanceof MissedFrame)) throw error;
      this.loadSoon();
    }
  }

  /** Fetches it for nobody who waits: a failure is tried again soon, until the feed is stopped. */
  loadSoon(): void {
    clearTimeout(this.retry);
    this.load().catch(() => {
      if (this.isStopped) return;
      this.retry = setTimeout(() => this.loadSoon(), RETRY_MS);
    });
  }

  stop(): void {
    this.isStopped = true;
    clearTimeout(this.retry);
  }

  private async fetch(): Promise<void> {
    const known = this.grid?.place;
    const fetched = unpackGrid(await this.options.fetchGrid());
    const isSame = this.grid !== null && known?.epoch === fetched.place.epoch && known.epoch !== "";
    if (this.grid && isSame) this.show(renewed(this.grid, fetched));
    else this.show(fetched);
    for (const frame of this.waiting.splice(0)) this.takeLate(frame);
    this.options.subscribe(this);
  }

  /** Of the frames that came meanwhile those already in the grid are left out. */
  private takeLate(frame: ArrayBuffer): void {
    try {
      if (this.grid) this.show(applyFrame(this.grid, frame));
    } catch (error) {
      if (!(error instanceof MissedFrame)) throw error;
    }
  }

  private show(grid: LiveGrid): void {
    this.grid = grid;
    this.options.onColumns(grid.columns);
  }
}

/** Places stay the same arrays, as nothing need be laid out anew; states stay where frames have brought newer ones. */
function renewed(shown: LiveGrid, fetched: LiveGrid): LiveGrid {
  const { at, last_seen_ms_ago, state, note } = fetched.columns;
  if (shown.place.offset > fetched.place.offset)
    return { ...shown, columns: { ...shown.columns, at, last_seen_ms_ago } };
  return { ...fetched, columns: { ...shown.columns, at, last_seen_ms_ago, state, note } };
}
