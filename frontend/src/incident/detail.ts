/*
 * One incident kept current: the REST answer, its live stream, and the pictures that belong to it. A newer
 * version fetches the answer again (after a breath, several changes often come at once); they follow while
 * the fault is still happening.
 */

import { type Signal, signal } from "@preact/signals";
import { type IncidentAnswer, readIncident, readIncidentGrid, readLanes, readStanding } from "../api";
import { emptySnapshot } from "../live/apply";
import type { DumpsRow } from "../live/rows";
import { LiveStream } from "../live/streams";
import { holdIncident } from "../state/actions";
import { connection } from "../state/team";
import type { GridColumns, Lanes, Standing } from "../types";

const BREATH_MS = 250;
const REFRESH_MS = 5000;
/** The server draws no longer a time of the lanes: then they stay as they are until the incident changes. */
const LANES_MS = 60_000;
/** The server's own limit of flows in one answer. */
const FLOWS_MAX = 1024;
/** Lanes of the newest time begin so long before what is known: data comes while they are asked for. */
const NEWEST_MS = 50_000;

/** What the lanes show: around the fault, or the newest time. */
export type LanesTime = "fault" | "newest";

export class IncidentDetail {
  readonly answer: Signal<IncidentAnswer | null> = signal(null);
  readonly grid: Signal<GridColumns | null> = signal(null);
  readonly lanes: Signal<Lanes | null> = signal(null);
  /** Whether all flows of the ranks shown are asked for, not the first only. */
  readonly allFlows: Signal<boolean> = signal(false);
  readonly lanesTime: Signal<LanesTime> = signal("fault");
  readonly standing: Signal<Standing | null> = signal(null);
  readonly pictureFailure: Signal<string | null> = signal(null);
  /** How far the newest dumps have come, as last heard; null until something is heard. */
  readonly dumps: Signal<DumpsRow | null> = signal(null);
  readonly stream: LiveStream;
  /** The time a permalink has pinned, unix ms; the lanes show that and nothing newer. */
  readonly pinned: Signal<readonly [number, number] | null> = signal(null);
  private rank: number | null = null;
  /** Questions about pictures whose answers are not there yet. */
  private readonly reading = new Set<string>();
  /** Which pictures have come whole since the incident last changed, and how often: the first time some nodes may be late. */
  private readonly whole = new Map<string, number>();
  private reload: ReturnType<typeof setTimeout> | undefined;

  constructor(readonly number: number) {
    this.stream = new LiveStream(connection, {
      fetchSnapshot: async () => {
        const answer = await readIncident(number);
        this.answer.value = answer;
        return { ...emptySnapshot(answer.stream), incidents: [answer.incident], timeline: answer.timeline };
      },
      onMessage: (message) => {
        if (message.type === "incident.changed") this.soon();
        if (message.type === "dumps") this.dumps.value = message.row;
      },
    });
  }

  /** Starts following; returns what stops it. */
  follow(rank: number | null): () => void {
    this.rank = rank;
    const leave = connection.add(this.stream);
    const release = holdIncident(this.stream);
    void this.readPictures();
    const timer = setInterval(
      () => (this.isLive() || this.pictureFailure.value) && void this.readPictures(),
      REFRESH_MS,
    );
    return () => {
      leave();
      release();
      clearInterval(timer);
      clearTimeout(this.reload);
    };
  }

  /** Shows another rank's flows; null: culprits and first victims. */
  showRank(rank: number | null): void {
    if (rank === this.rank) return;
    this.rank = rank;
    this.allFlows.value = false;
    void this.readPictures();
  }

  showAllFlows(): void {
    this.allFlows.value = true;
    void this.readPictures();
  }

  showTime(time: LanesTime): void {
    this.lanesTime.value = time;
    void this.readPictures();
  }

  pinTime(time: readonly [number, number] | null): void {
    if (String(time) === String(this.pinned.value)) return;
    this.pinned.value = time;
    void this.readPictures();
  }

  refreshMay(): void {
    this.soon();
  }

  private soon(): void {
    clearTimeout(this.reload);
    this.reload = setTimeout(() => {
      void this.stream.load();
      this.whole.clear();
      void this.readPictures();
    }, BREATH_MS);
  }

  private isLive(): boolean {
    const row = this.stream.snapshot.value?.incidents[0];
    return row === undefined || (row.state !== "resolved" && row.condition !== "clear");
  }

  /**
   * Each is shown as soon as it is there: the lanes of a large job take longer to read than its grid. A question that was
   * asked already waits for the answer that is on its way: a slow server must not be asked ever more.
   */
  private async readPictures(): Promise<void> {
    const question = this.question();
    if (this.reading.has(question)) return;
    this.reading.add(question);
    const grid = readIncidentGrid(this.number).then((answer) => {
      this.grid.value = answer;
    });
    const pictures = [grid, this.readLanes(question), this.readStanding()];
    const failed = (await Promise.allSettled(pictures)).find((one) => one.status === "rejected");
    this.pictureFailure.value = failed ? (failed.reason as Error).message : null;
    this.reading.delete(question);
  }

  private async readLanes(question: string): Promise<void> {
    if (this.isSettled(question)) return;
    const answer = await readLanes(this.number, question);
    if (question !== this.question()) return;
    this.lanes.value = answer;
    // Of the newest time there is always more to come.
    if (this.lanesTime.value === "fault") this.count(question, answer);
  }

  private async readStanding(): Promise<void> {
    if (this.isSettled("standing")) return;
    const answer = await readStanding(this.number);
    this.standing.value = answer;
    this.count("standing", answer);
  }

  private isSettled(picture: string): boolean {
    return (this.whole.get(picture) ?? 0) > 1;
  }

  private count(picture: string, { from_ns, to_ns }: { from_ns: number; to_ns: number }): void {
    const isWhole = to_ns - from_ns >= LANES_MS * 1e6;
    this.whole.set(picture, isWhole ? (this.whole.get(picture) ?? 0) + 1 : 0);
  }

  /** What is asked of the lanes. */
  private question(): string {
    const pinned = this.pinned.value;
    const newest = this.lanesTime.value === "newest" && !pinned ? this.lanes.value?.newest_ns : undefined;
    const asked = [
      this.rank === null ? "" : `ranks=${this.rank}`,
      this.allFlows.value ? `limit=${FLOWS_MAX}` : "",
      pinned ? `from_ns=${pinned[0] * 1e6}&to_ns=${pinned[1] * 1e6}` : "",
      newest === undefined ? "" : `from_ns=${Math.max(0, Math.round(newest - NEWEST_MS * 1e6))}`,
    ].filter(Boolean);
    return asked.length > 0 ? `?${asked.join("&")}` : "";
  }
}
