/*
 * A process group's ranks as the Flight Recorder saw them: ranks with the same numbers are one row, so that ten thousand
 * are a few, and those who are behind or did another op than most stand first. Pure.
 */

import type { RecorderAnswer, RecorderGroup, RecorderRank } from "./shapes";

/**
 * behind: queued less than others who wait. other: another op, size or type at the same number. earlier: queued less, and
 * nobody waits, so it is only the moment of the dump.
 */
export type Standing = "behind" | "other" | "with the rest" | "earlier" | "unknown";

export interface RecordedRow {
  ranks: number[];
  one: RecorderRank;
  standing: Standing;
  /** How many ops the group's newest is ahead of it. */
  lag: number;
  ageFrom: number | null;
  ageTo: number | null;
}

const ORDER: readonly Standing[] = ["behind", "other", "unknown", "earlier", "with the rest"];

export function recordedRows(group: RecorderGroup): RecordedRow[] {
  const front = frontOf(group);
  const isWaitedFor = group.ranks.some(waits);
  const usual = usualOp(group.ranks.filter((one) => one.enqueued === front));
  const rows = new Map<string, RecordedRow>();
  for (const one of group.ranks) {
    const key = [one.enqueued, one.started, one.completed, one.state, opOf(one)].join("|");
    const row = rows.get(key);
    if (row) addRank(row, one);
    else rows.set(key, rowOf(one, { front, usual, isWaitedFor }));
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

const waits = ({ enqueued, completed }: RecorderRank) =>
  enqueued !== null && completed !== null && completed < enqueued;

interface Rest {
  front: number;
  usual: string;
  isWaitedFor: boolean;
}

function rowOf(one: RecorderRank, rest: Rest): RecordedRow {
  const lag = one.enqueued === null ? 0 : rest.front - one.enqueued;
  return { ranks: [one.rank], one, standing: standingOf(one, lag, rest), lag, ageFrom: one.age_s, ageTo: one.age_s };
}

function standingOf(one: RecorderRank, lag: number, { usual, isWaitedFor }: Rest): Standing {
  if (one.enqueued === null) return "unknown";
  if (lag > 0) return isWaitedFor ? "behind" : "earlier";
  return usual !== "" && opOf(one) !== usual ? "other" : "with the rest";
}

function addRank(row: RecordedRow, one: RecorderRank): void {
  row.ranks.push(one.rank);
  if (one.age_s === null) return;
  row.ageFrom = Math.min(row.ageFrom ?? one.age_s, one.age_s);
  row.ageTo = Math.max(row.ageTo ?? one.age_s, one.age_s);
}

function membersWithout({ members, ranks, unheard }: RecorderGroup): number[] {
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
  return { ranks, one, standing: "unknown", lag: 0, ageFrom: null, ageTo: null };
}

/** Groups in which somebody is behind or does another op first, then as they came. */
export function groupsInQuestion(recorder: RecorderAnswer): { group: RecorderGroup; rows: RecordedRow[] }[] {
  const read = recorder.groups.map((group, n) => ({ group, rows: recordedRows(group), n }));
  const weight = (rows: RecordedRow[]) =>
    Math.min(...rows.map(({ standing }) => ORDER.indexOf(standing)), ORDER.length);
  return read.sort((a, b) => weight(a.rows) - weight(b.rows) || a.n - b.n);
}
