/*
 * Streams: a REST snapshot kept current by live messages. While a snapshot is on its way, messages wait; a gap, a
 * server's "resync" or a subscription that could not resume fetches it again. While the socket is down every stream is
 * polled, so the page stays right without it, only later; so is a stream that should be talking and has fallen quiet, as
 * who died says nothing.
 */

import { type Signal, signal } from "@preact/signals";
import { applyMessage, type Snapshot } from "./apply";
import type { Frame } from "./decode";
import type { LiveMessage } from "./rows";
import { LiveSocket, phase } from "./socket";
import { TopologyFeed } from "./topology";

/** So long after the last question, and after the last message of a stream that should be talking. */
const POLL_MS = 5000;
const POLL_LOOK_MS = 1000;
const WAITING_MAX = 1000;

export interface StreamOptions {
  /** Fetches the snapshot; a rejected promise leaves the old one standing. */
  fetchSnapshot: () => Promise<Snapshot>;
  onMessage?: (message: LiveMessage) => void;
  /** Messages come every few seconds while all is well: silence is a reason to ask. */
  isTalkative?: boolean;
  /** Whether it holds more than its messages tell, and is asked for whatever comes. */
  isPartial?: () => boolean;
}

export class LiveStream {
  readonly snapshot: Signal<Snapshot | null> = signal(null);
  /** Why the newest fetch failed; null when it did not. */
  readonly failure: Signal<Error | null> = signal(null);
  /** When the newest snapshot was fetched, and since when one is waited for: this browser's clock, ms. */
  readonly fetchedAt: Signal<number | null> = signal(null);
  readonly askingSince: Signal<number | null> = signal(null);
  private askedAt = 0;
  /** When the newest answer or message came, this browser's ms. */
  heardAt = 0;
  /** The server does not tell of it (too many are followed), so it is asked. */
  isRefused = false;
  /** The offset from which what came since was asked for last. */
  private resumedAt = -1;
  private loading = false;
  private again = false;
  private waiting: LiveMessage[] = [];

  constructor(
    private readonly connection: Connection,
    private readonly options: StreamOptions,
  ) {}

  get name(): string | null {
    return this.snapshot.value?.stream.name ?? null;
  }

  /** Fetches the snapshot, then applies what arrived meanwhile. A call during a fetch makes one more fetch. */
  async load(): Promise<void> {
    if (this.loading) {
      this.again = true;
      return;
    }
    this.loading = true;
    this.askedAt = Date.now();
    this.askingSince.value = this.askedAt;
    const known = this.name;
    try {
      this.snapshot.value = await this.options.fetchSnapshot();
      this.failure.value = null;
      this.fetchedAt.value = Date.now();
    } catch (error) {
      this.failure.value = error as Error;
    }
    this.loading = false;
    this.askingSince.value = null;
    const isAsked = this.isRefused && this.failure.value === null;
    if (this.name && (this.name !== known || isAsked)) this.connection.subscribe(this);
    this.drain();
    if (this.again) {
      this.again = false;
      await this.load();
    }
  }

  /** What the poll does: a fetch that is under way is waited for. `isLive`: the socket stands. */
  poll(isLive: boolean): void {
    if (this.loading || Date.now() - this.askedAt < POLL_MS) return;
    if (!isLive || this.isRefused || this.isDue()) void this.load();
  }

  private isDue(): boolean {
    if (this.options.isPartial?.()) return true;
    if (!this.options.isTalkative) return false;
    return this.failure.value !== null || Date.now() - this.heardAt >= POLL_MS;
  }

  /**
   * What to do when the server says how far the page should be: a message was lost on the way and none after it told. What
   * came since is asked for once; where that was of no use (a message that this page refuses), all of it.
   */
  lag(offset: number): "none" | "resume" | "load" {
    const at = this.snapshot.value?.stream.offset;
    if (at === undefined || at >= offset || this.loading) return "none";
    const isNew = this.resumedAt !== at;
    this.resumedAt = at;
    if (isNew) return "resume";
    return Date.now() - this.askedAt >= POLL_MS ? "load" : "none";
  }

  take(message: LiveMessage): void {
    this.heardAt = Date.now();
    if (this.loading) {
      if (this.waiting.length < WAITING_MAX) this.waiting.push(message);
      else this.again = true;
      return;
    }
    const current = this.snapshot.value;
    if (!current) return;
    const { snapshot, outcome } = applyMessage(current, message);
    if (outcome === "gap") void this.load();
    if (outcome !== "applied") return;
    this.snapshot.value = snapshot;
    this.options.onMessage?.(message);
  }

  private drain(): void {
    const waiting = this.waiting;
    this.waiting = [];
    for (const message of waiting) this.take(message);
  }
}

/** Who has an incident open, by its stream; what the socket said last. */
export const looking = signal<Readonly<Record<string, readonly string[]>>>({});

export class Connection {
  private readonly streams = new Set<LiveStream>();
  private readonly grids = new Set<TopologyFeed>();
  private readonly socket: LiveSocket;

  constructor(url: string) {
    this.socket = new LiveSocket(url, {
      onOpen: () => {
        this.eachNamed((stream) => this.resume(stream));
        this.eachGrid((grid) => this.subscribeGrid(grid));
      },
      onFrame: (frame) => this.read(frame),
      onBytes: (bytes) => this.eachGrid((grid) => grid.take(bytes)),
    });
  }

  start(): void {
    this.socket.start();
    setInterval(() => this.poll(), POLL_LOOK_MS);
  }

  add(stream: LiveStream): () => void {
    this.streams.add(stream);
    void stream.load();
    return () => {
      this.streams.delete(stream);
      if (stream.name) this.socket.send({ unsubscribe: stream.name });
    };
  }

  /** Nothing is followed of which the page was left before its answer came. */
  subscribe(stream: LiveStream): void {
    const place = this.streams.has(stream) && stream.snapshot.value?.stream;
    if (place) this.socket.send({ subscribe: place.name, epoch: place.epoch, offset: place.offset });
  }

  addGrid(grid: TopologyFeed): () => void {
    this.grids.add(grid);
    return () => {
      this.grids.delete(grid);
      grid.stop();
      if (grid.place) this.socket.send({ unsubscribe: grid.place.name });
    };
  }

  subscribeGrid(grid: TopologyFeed): void {
    const { place } = grid;
    if (place?.epoch && this.grids.has(grid))
      this.socket.send({ subscribe: place.name, epoch: place.epoch, offset: place.offset });
  }

  private eachGrid(act: (grid: TopologyFeed) => void, name?: string): void {
    for (const grid of this.grids) if (!name || grid.place?.name === name) act(grid);
  }

  /** A stream whose last fetch failed shows old rows: a server that is back is asked at once. */
  private resume(stream: LiveStream): void {
    this.subscribe(stream);
    if (stream.failure.value) void stream.load();
  }

  private poll(): void {
    for (const stream of this.streams) stream.poll(phase.value === "live");
  }

  private read(frame: Frame): void {
    if (frame.kind === "message") this.eachNamed((stream) => stream.take(frame.message), frame.message.stream);
    if (frame.kind === "beat") this.catchUp(frame.offsets);
    if (frame.kind === "resync") this.eachGrid((grid) => grid.loadSoon(), frame.stream);
    if (frame.kind === "presence") looking.value = { ...looking.value, [frame.stream]: frame.people };
    if (frame.kind === "refused") this.each((one) => refuse(one), frame.stream);
    if (frame.kind === "subscribed") this.each((one) => (one.isRefused = false), frame.stream);
    if (frame.kind === "resync" || (frame.kind === "subscribed" && !frame.recovered))
      this.eachNamed((stream) => void stream.load(), frame.stream);
  }

  private catchUp(offsets: Readonly<Record<string, number>>): void {
    this.eachNamed((stream) => {
      const todo = stream.lag(offsets[stream.name ?? ""] ?? -1);
      if (todo === "resume") this.subscribe(stream);
      if (todo === "load") void stream.load();
    });
  }

  private each(act: (one: LiveStream | TopologyFeed) => void, name: string): void {
    this.eachNamed(act, name);
    this.eachGrid(act, name);
  }

  private eachNamed(act: (stream: LiveStream) => void, name?: string): void {
    for (const stream of this.streams) if (stream.name && (!name || stream.name === name)) act(stream);
  }
}

/** REST says why in words (signed out, no such incident), so the first refusal asks it; after that the poll does. */
function refuse(one: LiveStream | TopologyFeed): void {
  const isNew = !one.isRefused;
  one.isRefused = true;
  if (!isNew) return;
  if (one instanceof TopologyFeed) one.loadSoon();
  else void one.load();
}
