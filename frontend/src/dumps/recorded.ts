/*
 * A process group's ranks as the Flight Recorder saw them: ranks with the same numbers are one row, so that ten thousand
 * are a few, and those who are behind or did another op than most stand first. Pure.
 */

import type { RecorderAnswer, RecorderGroup, RecorderRank } from "./shapes";

/**
 * behind: queued less than others who wait, and is the one they wait for: it waits for nobody itself, or is a culprit.
 * waits: queued less because it waits in another group. other: another op, size or type at the same number. earlier: queued
 * less, and nobody waits, so it is only the moment of the dump.
 */
export type Standing = "behind" | "waits" | "other" | "with the rest" | "earlier" | "unknown";

export interface RecordedRow {
  ranks: number[];
  one: RecorderRank;
  standing: Standing;
  /** How many ops the group's newest is ahead of it. */
  lag: number;
  /** Where it waits, of those who are behind because of it. */
  waitsIn: string;
  ageFrom: number | null;
  ageTo: number | null;
}

const ORDER: readonly Standing[] = ["behind", "other", "waits", "unknown", "earlier", "with the rest"];

/** What is known across groups: in which ones each rank waits, and whom the findings blame. */
export interface Across {
  waitsIn: ReadonlyMap<number, readonly RecorderGroup[]>;
  culprits: ReadonlySet<number>;
}

export function acrossGroups(recorder: RecorderAnswer): Across {
  const waitsIn = new Map<number, RecorderGroup[]>();
  for (const group of recorder.groups)
    for (const one of group.ranks) if (waits(one)) waitsIn.set(one.rank, [...(waitsIn.get(one.rank) ?? []), group]);
  return { waitsIn, culprits: new Set(recorder.findings[0]?.culprits ?? []) };
}

export function titleOf({ name, desc }: RecorderGroup): string {
  return desc && desc !== "undefined" ? desc : name;
}

const NOTHING_ACROSS: Across = { waitsIn: new Map(), culprits: new Set() };

export function recordedRows(group: RecorderGroup, across: Across = NOTHING_ACROSS): RecordedRow[] {
  const front = frontOf(group);
  const rest: Rest = {
    front,
    usual: usualOp(group.ranks.filter((one) => one.enqueued === front)),
    isWaitedFor: group.ranks.some(waits),
    group,
    across,
  };
  const rows = new Map<string, RecordedRow>();
  for (const one of group.ranks) {
    const made = rowOf(one, rest);
    const key = [one.enqueued, one.started, one.completed, one.state, opOf(one), made.standing, made.waitsIn].join("|");
    const row = rows.get(key);
    if (row) addRank(row, one);
    else rows.set(key, made);
  }
  const missing = membersWithout(group);
  if (missing.length > 0) rows.set("missing", missingRow(missing));
  return [...rows.values()].sort(
    (a, b) => ORDER.indexOf(a.standing) - ORDER.indexOf(b.standing) || b.lag - a.lag || a.ranks[0] - b.ranks[0],
  );
}

function frontOf(group: RecorderGroup): number {
  return group.ranks.reduce((most, { enqueued }) => Math.max(most, enqueued ?? -1), -1);
}

const opOf = (one: RecorderRank) => [one.op, one.size, one.dtype].join(" ");

/** What more than half of them do; "" when no such op is. */
function usualOp(ranks: readonly RecorderRank[]): string {
  const counts = new Map<string, number>();
  for (const one of ranks) counts.set(opOf(one), (counts.get(opOf(one)) ?? 0) + 1);
  const [best] = [...counts].sort((a, b) => b[1] - a[1]);
  return best && best[1] * 2 > ranks.length ? best[0] : "";
}

/** It has queued an op that has not ended. */
export function waits({ enqueued, completed }: RecorderRank): boolean {
  return enqueued !== null && completed !== null && completed < enqueued;
}

interface Rest {
  front: number;
  usual: string;
  isWaitedFor: boolean;
  group: RecorderGroup;
  across: Across;
}

function rowOf(one: RecorderRank, rest: Rest): RecordedRow {
  const lag = one.enqueued === null ? 0 : rest.front - one.enqueued;
  const elsewhere = (rest.across.waitsIn.get(one.rank) ?? []).filter((group) => group !== rest.group);
  const standing = standingOf(one, lag, elsewhere.length > 0, rest);
  const waitsIn = standing === "waits" ? elsewhere.map(titleOf).join(", ") : "";
  return { ranks: [one.rank], one, standing, lag, waitsIn, ageFrom: one.age_s, ageTo: one.age_s };
}

function standingOf(one: RecorderRank, lag: number, waitsElsewhere: boolean, rest: Rest): Standing {
  if (one.enqueued === null) return "unknown";
  if (lag > 0 && !rest.isWaitedFor) return "earlier";
  if (lag > 0) return waitsElsewhere && !rest.across.culprits.has(one.rank) ? "waits" : "behind";
  return rest.usual !== "" && opOf(one) !== rest.usual ? "other" : "with the rest";
}

function addRank(row: RecordedRow, one: RecorderRank): void {
  row.ranks.push(one.rank);
  if (one.age_s === null) return;
  row.ageFrom = Math.min(row.ageFrom ?? one.age_s, one.age_s);
  row.ageTo = Math.max(row.ageTo ?? one.age_s, one.age_s);
}

/** Members of which no dump came. */
export function membersWithout({ members, ranks, unheard }: RecorderGroup): number[] {
  if (unheard) return [...unheard];
  const seen = new Set(ranks.map(({ rank }) => rank));
  return (members ?? []).filter((rank) => !seen.has(rank));
}

/** Members of which no dump came: unknown, never "with the rest". */
function missingRow(ranks: number[]): RecordedRow {
  const one: RecorderRank = {
    rank: ranks[0],
    enqueued: null,
    started: null,
    completed: null,
    state: "no dump",
    op: "",
    size: "",
    dtype: "",
    age_s: null,
  };
  return { ranks, one, standing: "unknown", lag: 0, waitsIn: "", ageFrom: null, ageTo: null };
}

/** Groups in which somebody is behind or does another op first, then as they came. */
export function groupsInQuestion(recorder: RecorderAnswer): { group: RecorderGroup; rows: RecordedRow[] }[] {
  const across = acrossGroups(recorder);
  const read = recorder.groups.map((group, n) => ({ group, rows: recordedRows(group, across), n }));
  const weight = (rows: RecordedRow[]) =>
    Math.min(...rows.map(({ standing }) => ORDER.indexOf(standing)), ORDER.length);
  return read.sort((a, b) => weight(a.rows) - weight(b.rows) || a.n - b.n);
}
