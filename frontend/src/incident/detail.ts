/*
 * One incident kept current: the REST answer, its live stream, and the grid and lanes that belong to it. A newer
 * version fetches the answer again (after a breath, several changes often come at once); grid and lanes follow while
 * the fault is still happening.
 */

import { type Signal, signal } from "@preact/signals";
import { type IncidentAnswer, readIncident, readIncidentGrid, readLanes } from "../api";
import { emptySnapshot } from "../live/apply";
import type { DumpsRow } from "../live/rows";
import { LiveStream } from "../live/streams";
import { holdIncident } from "../state/actions";
import { connection } from "../state/team";
import type { GridColumns, Lanes } from "../types";

const BREATH_MS = 250;
const REFRESH_MS = 5000;
/** The server draws no longer a time of the lanes: then they stay as they are until the incident changes. */
const LANES_MS = 60_000;

export class IncidentDetail {
  readonly answer: Signal<IncidentAnswer | null> = signal(null);
  readonly grid: Signal<GridColumns | null> = signal(null);
  readonly lanes: Signal<Lanes | null> = signal(null);
  readonly pictureFailure: Signal<string | null> = signal(null);
  /** How far the newest dumps have come, as last heard; null until something is heard. */
  readonly dumps: Signal<DumpsRow | null> = signal(null);
  readonly stream: LiveStream;
  private rank: number | null = null;
  /** Ranks whose pictures are asked for and not there yet. */
  private readonly reading = new Set<number | null>();
  /** Whose lanes have come whole since the incident last changed, and how often: the first time some nodes may be late. */
  private whole: { rank: number | null; times: number } = { rank: null, times: 0 };
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
    void this.readPictures();
  }

  refreshMay(): void {
    this.soon();
  }

  private soon(): void {
    clearTimeout(this.reload);
    this.reload = setTimeout(() => {
      void this.stream.load();
      this.whole.times = 0;
      void this.readPictures();
    }, BREATH_MS);
  }

  private isLive(): boolean {
    const row = this.stream.snapshot.value?.incidents[0];
    return row === undefined || (row.state !== "resolved" && row.condition !== "clear");
  }

  /**
   * Each is shown as soon as it is there: the lanes of a large job take longer to read than its grid. A question about the
   * same rank waits for the answer that is on its way: a slow server must not be asked ever more.
   */
  private async readPictures(): Promise<void> {
    const rank = this.rank;
    if (this.reading.has(rank)) return;
    this.reading.add(rank);
    const grid = readIncidentGrid(this.number).then((answer) => {
      this.grid.value = answer;
    });
    const isSettled = this.whole.rank === rank && this.whole.times > 1;
    const failed = (await Promise.allSettled([grid, isSettled ? null : this.readLanes(rank)])).find(
      (one) => one.status === "rejected",
    );
    this.pictureFailure.value = failed ? (failed.reason as Error).message : null;
    this.reading.delete(rank);
  }
  private async readLanes(rank: number | null): Promise<void> {
    const answer = await readLanes(this.number, rank === null ? "" : `?ranks=${rank}`);
    if (rank !== this.rank) return;
    this.lanes.value = answer;
    const isWhole = answer.to_ns - answer.from_ns >= LANES_MS * 1e6;
    const before = this.whole.rank === rank ? this.whole.times : 0;
    this.whole = { rank, times: isWhole ? before + 1 : 0 };
  }
}
