/*
 * The page's one socket. It reconnects with a jittered back-off and watches for silence itself: a connection whose
 * network went away stays "open" for minutes, so three seconds without a frame count as stale whatever the browser
 * says. It knows nothing of rows; streams.ts decides what a frame means.
 */

import { signal } from "@preact/signals";
import { BadFrame, decodeFrame, type Frame } from "./decode";

export type Phase = "connecting" | "live" | "reconnecting" | "stale";

export const STALE_MS = 3000;
const GIVE_UP_MS = 8000;
const WATCH_MS = 500;
// The page must be live again within seconds of the server's return.
const BACKOFF_MS = [500, 1000, 2000, 4000, 5000];

export const phase = signal<Phase>("connecting");
export const lastFrameAt = signal<number | null>(null);
export const badFrames = signal(0);

/** Wait before attempt `attempt` (0 = first retry): between half and all of the step, so that tabs do not return at once. */
export function backoffMs(attempt: number, random: number): number {
  const step = BACKOFF_MS[Math.min(attempt, BACKOFF_MS.length - 1)];
  return Math.round(step * (0.5 + random / 2));
}

/** What to show, given the silence since the last frame. */
export function phaseAfter(connected: boolean, silentMs: number | null): Phase {
  if (silentMs === null) return "connecting";
  if (silentMs <= STALE_MS && connected) return "live";
  return silentMs > STALE_MS ? "stale" : "reconnecting";
}

export interface SocketUser {
  onOpen(): void;
  onFrame(frame: Frame): void;
  onBytes(bytes: ArrayBuffer): void;
}

export class LiveSocket {
  private socket: WebSocket | null = null;
  private attempt = 0;
  private triedAt = 0;
  private retry: ReturnType<typeof setTimeout> | undefined;
  private watch: ReturnType<typeof setInterval> | undefined;

  constructor(
    private readonly url: string,
    private readonly user: SocketUser,
  ) {}

  start(): void {
    this.connect();
    this.watch = setInterval(() => this.check(), WATCH_MS);
  }

  stop(): void {
    clearInterval(this.watch);
    clearTimeout(this.retry);
    this.drop();
  }

  send(frame: object): void {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(frame));
  }

  private connect(): void {
    const socket = new WebSocket(this.url);
    socket.binaryType = "arraybuffer";
    this.socket = socket;
    this.triedAt = Date.now();
    socket.onopen = () => {
      lastFrameAt.value = Date.now();
      this.user.onOpen();
    };
    socket.onmessage = (message) => this.read(message.data);
    socket.onclose = () => {
      if (this.socket === socket) this.reconnect();
    };
  }

  private read(said: string | ArrayBuffer): void {
    lastFrameAt.value = Date.now();
    this.attempt = 0;
    this.check();
    try {
      if (typeof said === "string") this.user.onFrame(decodeFrame(said));
      else this.user.onBytes(said);
    } catch (error) {
      if (!(error instanceof BadFrame)) throw error;
      badFrames.value += 1;
      console.warn(`Live message refused: ${error.message}`);
    }
  }

  private check(): void {
    const silentMs = lastFrameAt.value === null ? null : Date.now() - lastFrameAt.value;
    const connected = this.socket?.readyState === WebSocket.OPEN;
    phase.value = phaseAfter(connected, silentMs);
    const isStuck = this.socket !== null && !connected && Date.now() - this.triedAt > GIVE_UP_MS; // a handshake nobody answers
    if (isStuck || (connected && silentMs !== null && silentMs > GIVE_UP_MS)) this.reconnect();
  }

  private reconnect(): void {
    this.drop();
    clearTimeout(this.retry);
    this.retry = setTimeout(() => this.connect(), backoffMs(this.attempt, Math.random()));
    this.attempt += 1;
    this.check();
  }

  private drop(): void {
    const socket = this.socket;
    this.socket = null;
    if (!socket) return;
    socket.onopen = socket.onmessage = socket.onclose = null;
    socket.close();
  }
}
