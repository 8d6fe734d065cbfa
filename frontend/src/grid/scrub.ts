/*
 * The moment that a page's pictures show, and the grid of it. While somebody drags, one question is under way at a time
 * and the newest wish is asked next; what was under way is shown when it comes, so the grid follows the hand. Nothing is
 * shown before it is there: the older picture stays. The neighbours of the moment one rests at are read ahead.
 */

import { type Signal, signal } from "@preact/signals";
import { type Moments, type Past, readMoments, readPast, type Source } from "./past";

export const STEP_MS = 1000;
const KEPT_MAX = 90;
const KEPT_RANKS_MAX = 2_000_000;
/** So long an answer holds that data still on its way may change. */
const UNSETTLED_MS = 3000;
const REFRESH_MS = 5000;
/** Ten questions a second are smooth, and half of what the server takes of one person. */
const APART_MS = 100;
/** Read ahead: further in the direction one came from, and one back. */
const AHEAD = [1, 2, -1, 3];

interface KeptPast {
  past: Past;
  readAt: number;
}

export class Scrub {
  readonly moments: Signal<Moments | null> = signal(null);
  /** What is to be shown, unix ms; null: the newest. */
  readonly at: Signal<number | null> = signal(null);
  /** The newest answer; while another is on its way, that of an earlier wish. */
  readonly past: Signal<Past | null> = signal(null);
  readonly failure: Signal<string | null> = signal(null);
  private readonly kept = new Map<string, KeptPast>();
  private isAsking = false;
  private isStopped = false;
  private isHeld = false;
  private direction = 1;
  private askedAt = 0;
  private revision: number | null = null;

  constructor(readonly source: Source) {}

  /** Starts following; returns what stops it. */
  follow(): () => void {
    this.isStopped = false;
    void this.readMoments();
    const timer = setInterval(() => this.refresh(), REFRESH_MS);
    return () => {
      this.isStopped = true;
      clearInterval(timer);
    };
  }

  /** Shows another moment; null: the newest. */
  show(ms: number | null): void {
    const before = this.at.peek();
    if (ms === before) return;
    if (ms !== null && before !== null) this.direction = ms < before ? -1 : 1;
    this.at.value = ms;
    this.failure.value = null;
    if (ms === null) this.past.value = null;
    else void this.pump();
  }

  /** Whose verdict blames. */
  blameAsBy(revision: number | null): void {
    if (revision === this.revision) return;
    this.revision = revision;
    if (this.at.peek() !== null) void this.pump();
  }

  /** While a hand is on the slider its minutes must not move under it. */
  hold(isHeld: boolean): void {
    this.isHeld = isHeld;
  }

  async readMoments(): Promise<void> {
    try {
      const moments = await readMoments(this.source);
      if (!this.isHeld && !this.isStopped) this.moments.value = moments;
    } catch (error) {
      if (!this.moments.peek()) this.failure.value = (error as Error).message;
    }
  }

  private refresh(): void {
    const { moments } = this;
    if (!moments.peek() || moments.peek()?.is_live) void this.readMoments();
    if (this.at.peek() !== null && (this.failure.peek() || !this.past.peek()?.isSettled)) void this.pump();
  }

  private async pump(): Promise<void> {
    if (this.isAsking) return;
    this.isAsking = true;
    let wanted = this.at.peek();
    while (wanted !== null && !this.isStopped) {
      if (!this.known(wanted, this.revision) && this.waitMs() > 0) await this.turn();
      const revision = this.revision;
      wanted = this.at.peek();
      if (wanted === null) break;
      await this.answer(wanted, revision);
      if (this.at.peek() === wanted && this.revision === revision) break;
      wanted = this.at.peek();
    }
    this.isAsking = false;
    if (wanted !== null && !this.failure.peek()) void this.readAhead(wanted);
  }

  /** Shown also when the hand has moved on since, but not once the newest is wanted again. */
  private async answer(ms: number, revision: number | null): Promise<void> {
    try {
      const past = await this.read(ms, revision);
      if (this.at.peek() !== null && !this.isStopped) this.past.value = past;
      if (this.at.peek() === ms) this.failure.value = null;
    } catch (error) {
      if (this.at.peek() !== ms) return;
      this.failure.value = (error as Error).message;
      this.past.value = null; // nothing must stand below a time it is not of
    }
  }

  private async readAhead(ms: number): Promise<void> {
    for (const n of AHEAD) {
      await this.turn();
      if (this.at.peek() !== ms || this.isAsking || this.isStopped) return;
      const next = ms + n * this.direction * STEP_MS;
      const moments = this.moments.peek();
      if (moments && next * 1e6 >= moments.first_ns && next * 1e6 <= moments.newest_ns)
        await this.read(next, this.revision).catch(() => undefined);
    }
  }

  private known(ms: number, revision: number | null): Past | null {
    const kept = this.kept.get(`${ms} ${revision}`);
    return kept && (kept.past.isSettled || Date.now() - kept.readAt < UNSETTLED_MS) ? kept.past : null;
  }

  private waitMs(): number {
    return this.askedAt + APART_MS - Date.now();
  }

  /** Waits until the next question may be asked. */
  private turn(): Promise<void> {
    return new Promise((done) => setTimeout(done, Math.max(0, this.waitMs())));
  }

  private async read(ms: number, revision: number | null): Promise<Past> {
    const known = this.known(ms, revision);
    if (known) return known;
    const key = `${ms} ${revision}`;
    this.askedAt = Date.now();
    const past = await readPast(this.source, ms, revision);
    this.kept.delete(key);
    this.kept.set(key, { past, readAt: Date.now() });
    const room = Math.max(AHEAD.length + 1, Math.min(KEPT_MAX, KEPT_RANKS_MAX / (past.state.length + 1)));
    for (const [oldest] of this.kept) if (this.kept.size > room) this.kept.delete(oldest);
    return past;
  }
}
