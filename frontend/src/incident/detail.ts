/*
 * One incident kept current: the REST answer, its live stream, and the pictures that belong to it. A newer
 * version fetches the answer again, after a breath: several changes often come at once, and many pages hear of them. What
 * people do leaves the pictures as they are; they are read anew when the machine finds something, and while the fault is
 * still happening.
 */

import { computed, type ReadonlySignal, type Signal, signal } from "@preact/signals";
import { type IncidentAnswer, readIncident, readIncidentTopology, readLanes, readStanding } from "../api";
import { Scrub } from "../grid/scrub";
import { emptySnapshot } from "../live/apply";
import type { DumpsRow, IncidentRow } from "../live/rows";
import { phase } from "../live/socket";
import { LiveStream } from "../live/streams";
import { TopologyFeed } from "../live/topology";
import { holdIncident } from "../state/actions";
import { connection } from "../state/team";
import type { GridColumns, Lanes, Standing } from "../types";

const BREATH_MS = 250;
/** Pages that hear of what others did do not all ask in the same moment. */
const SPREAD_MS = 1000;
const REFRESH_MS = 5000;
const GRID_MS = 30_000;
/** The server draws no longer a time of the lanes: then they stay as they are until the incident changes. */
const LANES_MS = 60_000;
/** Flows of a first answer, and the server's own limit. */
const FLOWS_AT_FIRST = 64;
const FLOWS_MAX = 1024;
/** Of a moment outside the lanes' own minute one of these is shown, which begin every half minute: they can be kept. */
const TILE_MS = 60_000;
const LANES_BEFORE_MS = 10_000;
/** Lanes of the newest time begin so long before what is known: data comes while they are asked for. */
const NEWEST_MS = 50_000;

/** What the lanes show: around the fault, or the newest time. */
export type LanesTime = "fault" | "newest";

export class IncidentDetail {
  readonly answer: Signal<IncidentAnswer | null> = signal(null);
  readonly grid: Signal<GridColumns | null> = signal(null);
  /** Where the ranks are: the same object while frames change their states alone. */
  readonly places: ReadonlySignal<GridColumns | null>;
  readonly lanes: Signal<Lanes | null> = signal(null);
  /** How many flows of the ranks shown are asked for. */
  readonly flowsAsked: Signal<number> = signal(FLOWS_AT_FIRST);
  readonly lanesTime: Signal<LanesTime> = signal("fault");
  readonly standing: Signal<Standing | null> = signal(null);
  readonly pictureFailure: Signal<string | null> = signal(null);
  /** How far the newest dumps have come, as last heard; null until something is heard. */
  readonly dumps: Signal<DumpsRow | null> = signal(null);
  readonly stream: LiveStream;
  private readonly topology: TopologyFeed;
  private gridAskedAt = 0;
  /** The time a permalink has pinned, unix ms; the lanes show that and nothing newer. */
  readonly pinned: Signal<readonly [number, number] | null> = signal(null);
  /** The moment that grid, lanes and stacks show. */
  readonly scrub: Scrub;
  private moment: number | null = null;
  private rank: number | null = null;
  /** Of which questions the lanes and the standing that are shown are answers. */
  private lanesOf: string | null = null;
  private standingOf: string | null = null;
  /** Questions about pictures whose answers are not there yet. */
  private readonly reading = new Set<string>();
  /** Which pictures have come whole since the incident last changed, and how often: the first time some nodes may be late. */
  private readonly whole = new Map<string, number>();
  private reload: ReturnType<typeof setTimeout> | undefined;
  private reloadAt = 0;
  /** What the machine had found when the pictures were last asked for because of it. */
  private found: string | null = null;
  private arePicturesDue = false;

  constructor(readonly number: number) {
    this.scrub = new Scrub(`incidents/${number}`);
    this.topology = new TopologyFeed({
      number,
      fetchGrid: () => readIncidentTopology(number),
      subscribe: (feed) => connection.subscribeGrid(feed),
      onColumns: (columns) => {
        this.grid.value = columns;
      },
    });
    let places: GridColumns | null = null;
    this.places = computed(() => {
      if (this.grid.value?.rank !== places?.rank) places = this.grid.value;
      return places;
    });
    this.stream = new LiveStream(connection, {
      fetchSnapshot: async () => {
        const answer = await readIncident(number);
        this.answer.value = answer;
        this.find(answer.incident);
        this.scrub.blameAsBy(answer.diagnosis_id);
        return { ...emptySnapshot(answer.stream), incidents: [answer.incident], timeline: answer.timeline };
      },
      onMessage: (message) => {
        if (message.type === "incident.changed") this.hear(message.row);
        if (message.type === "dumps") this.dumps.value = message.row;
      },
    });
  }

  /** Starts following; returns what stops it. */
  follow(rank: number | null): () => void {
    this.rank = rank;
    const leave = connection.add(this.stream);
    const leaveGrid = connection.addGrid(this.topology);
    const release = holdIncident(this.stream);
    const leaveTime = this.scrub.follow();
    void this.readPictures();
    const timer = setInterval(
      () => (this.isLive() || this.pictureFailure.value) && void this.readPictures(),
      REFRESH_MS,
    );
    return () => {
      leave();
      leaveTime();
      leaveGrid();
      release();
      clearInterval(timer);
      clearTimeout(this.reload);
      this.reload = undefined;
    };
  }

  /** Shows another rank's flows; null: culprits and first victims. */
  showRank(rank: number | null): void {
    if (rank === this.rank) return;
    this.rank = rank;
    this.flowsAsked.value = FLOWS_AT_FIRST;
    void this.readPictures();
  }

  /** As many again. */
  showMoreFlows(): void {
    this.flowsAsked.value = Math.min(FLOWS_MAX, this.flowsAsked.value * 2);
    void this.readPictures();
  }

  get mayShowMoreFlows(): boolean {
    return this.flowsAsked.value < FLOWS_MAX;
  }

  /** Puts the lanes where the moment is; null: back to their own time. */
  pinMoment(ms: number | null): void {
    const before = this.question();
    this.moment = ms;
    if (this.question() !== before) void this.readPictures();
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
    this.soon(BREATH_MS);
  }

  /** The incident has changed. */
  hear(row: IncidentRow): void {
    const found = foundIn(row);
    this.arePicturesDue ||= found !== this.found;
    this.found = found;
    this.soon(BREATH_MS + Math.random() * SPREAD_MS);
  }

  /** What a snapshot brings is heard no more: its messages are as old as it is. */
  private find(row: IncidentRow): void {
    const [before, found] = [this.found, foundIn(row)];
    this.found = found;
    if (before !== null && found !== before) this.readPicturesAnew();
  }

  private readPicturesAnew(): void {
    this.arePicturesDue = false;
    this.whole.clear();
    void this.readPictures();
  }

  private soon(ms: number): void {
    const dueAt = Date.now() + ms;
    if (this.reload !== undefined && this.reloadAt <= dueAt) return;
    clearTimeout(this.reload);
    this.reloadAt = dueAt;
    this.reload = setTimeout(() => {
      this.reload = undefined;
      void this.stream.load();
      if (this.arePicturesDue) this.readPicturesAnew();
    }, ms);
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
    const pictures = [this.readGrid(), this.readLanes(question), this.readStanding(this.minute())];
    const failed = (await Promise.allSettled(pictures)).find((one) => one.status === "rejected");
    this.pictureFailure.value = failed ? (failed.reason as Error).message : null;
    this.reading.delete(question);
  }

  /** Frames keep it current while the socket stands: then it is fetched only for the ages, which they do not tell. */
  private async readGrid(): Promise<void> {
    const isFollowed = phase.value === "live" && this.topology.place?.epoch && !this.topology.isRefused;
    if (isFollowed && Date.now() - this.gridAskedAt < GRID_MS) return;
    this.gridAskedAt = Date.now();
    await this.topology.load();
  }

  private async readLanes(question: string): Promise<void> {
    if (this.lanesOf === question && this.isSettled(question)) return;
    const answer = await readLanes(this.number, question);
    if (question !== this.question()) return;
    this.lanesOf = question;
    this.lanes.value = answer;
    // Of the newest time there is always more to come.
    if (this.lanesTime.value === "fault") this.count(question, answer);
  }

  private async readStanding(minute: string): Promise<void> {
    if (this.standingOf === minute && this.isSettled(`standing ${minute}`)) return;
    const answer = await readStanding(this.number, minute && `?${minute}`);
    if (minute !== this.minute()) return;
    this.standingOf = minute;
    this.standing.value = answer;
    this.count(`standing ${minute}`, answer);
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
    const minute = this.minute();
    const newest = this.lanesTime.value === "newest" && !minute ? this.lanes.value?.newest_ns : undefined;
    const asked = [
      this.rank === null ? "" : `ranks=${this.rank}`,
      this.flowsAsked.value > FLOWS_AT_FIRST ? `limit=${this.flowsAsked.value}` : "",
      minute,
      newest === undefined ? "" : `from_ns=${Math.max(0, Math.round(newest - NEWEST_MS * 1e6))}`,
    ].filter(Boolean);
    return asked.length > 0 ? `?${asked.join("&")}` : "";
  }

  /** The time that the address asks for: its own range, else the minute around a moment far from the fault. "": none. */
  private minute(): string {
    const [from, to] = this.pinned.value ?? this.tile() ?? [];
    return from === undefined || to === undefined ? "" : `from_ns=${from}000000&to_ns=${to}000000`;
  }

  private tile(): readonly [number, number] | null {
    if (this.moment === null) return null;
    const first = Date.parse(this.answer.value?.incident.first_symptom_at ?? "");
    const own = first - LANES_BEFORE_MS;
    if (this.lanesTime.value === "fault" && this.moment >= own && this.moment <= own + LANES_MS) return null;
    return tileOf(this.moment);
  }
}

/** All of a row that pictures show: not what people did, nor when. */
function foundIn(row: IncidentRow): string {
  const { symptom, attempt, condition, certainty, headline, component, fault_kind, grade } = row;
  const { culprits, n_culprits, n_victims, first_symptom_at, triggered_at, root_caused_at } = row;
  const words = [symptom, attempt, condition, certainty, headline, component, fault_kind, grade];
  return JSON.stringify([words, culprits, n_culprits, n_victims, first_symptom_at, triggered_at, root_caused_at]);
}

/** The minute of the lanes in whose middle half the moment lies, unix ms. */
export function tileOf(ms: number): readonly [number, number] {
  const from = Math.floor((ms - TILE_MS / 4) / (TILE_MS / 2)) * (TILE_MS / 2);
  return [from, from + TILE_MS];
}
