/*
 * Who stood still when, as rows for a picture: one per rank, culprits first, then of a tie who may be, each with its spans; and what a span says
 * in words. Pure.
 */

import { ROLES, type Role } from "../state/roles";
import type { Lanes, Span, Standing } from "../types";
import { RECEIVE_WORDS } from "./scale";

export interface StandingRow {
  rank: number;
  role: Role;
  spans: readonly Span[];
}

export interface StandingGroup {
  role: Role;
  rows: StandingRow[];
}

export function standingGroups(standing: Standing, roleOf: (rank: number) => Role, limit: number): StandingGroup[] {
  const spans = new Map<number, Span[]>(standing.ranks.map((rank) => [rank, []]));
  for (const span of standing.spans) spans.get(span.rank)?.push(span);
  const rows = standing.ranks.map((rank): StandingRow => {
    const role = roleOf(rank);
    const mine = spans.get(rank) ?? [];
    return { rank, role, spans: mine.map((span) => overruled(span, role)) };
  });
  const ordered = ROLES.flatMap((role) => rows.filter((row) => row.role === role)).slice(0, limit);
  return ROLES.map((role) => ({ role, rows: ordered.filter((row) => row.role === role) })).filter(
    (group) => group.rows.length > 0,
  );
}

/**
 * One flow's counters may say of a rank that only waits that it is its own side, or of a culprit that it is the other (a
 * NIC that is down looks so): the verdict, which weighs all, says otherwise.
 */
function overruled(span: Span, role: Role): Span {
  return span.verdict === AGAINST[role] ? { ...span, verdict: OVERRULED[span.verdict] } : span;
}

const AGAINST: Record<Role, string | null> = { culprit: "remote", suspect: null, victim: "local", other: null };
const OVERRULED: Record<string, string> = { local: "overruled", remote: "overruled-remote" };

/** What a rank does where no flow of it stands still, and short words for where one does. */
export const DOING: Record<string, string> = {
  not_started: "not started",
  not_transmitted: "not transmitted",
  not_delivered: "not delivered",
  gpu_not_ready: "GPU not ready",
  moves: "moves",
  between_ops: "in no op",
  not_visible: "in an op without flows",
  stopped: "process stopped",
  gone: "process gone",
  unheard: "nothing heard",
};

/** The same conditions at a flow that receives: ①②③ are received, flushed, consumed there. */
export const RECEIVING: Record<string, string> = {
  not_started: "nothing received",
  not_transmitted: "received, not flushed",
  not_delivered: "received, not consumed",
  gpu_not_ready: "next chunk not received",
};

export const CONDITIONS = ["not_started", "not_transmitted", "not_delivered", "gpu_not_ready"];

/** Rows of these alone are no picture: nobody stood still. */
const GOES_ON = ["moves", "between_ops"];

/** Whether it is known of all of them that none stood still. */
export function allGoOn({ spans }: Standing): boolean {
  return spans.length > 0 && spans.every(({ doing }) => GOES_ON.includes(doing));
}

const SIDE: Record<string, string> = { local: "its own side", remote: "the other side" };

export function isStanding(span: Span | null): span is Span {
  return span !== null && (CONDITIONS.includes(span.doing) || span.doing === "stopped" || span.doing === "gone");
}

/** The span of a row at a moment; its last one at the very end. */
export function spanAt(row: StandingRow, ns: number): Span | null {
  return row.spans.find((span) => span.from_ns <= ns && ns < span.to_ns) ?? row.spans.at(-1) ?? null;
}

/** "not transmitted" and "its own side", for beside the picture; a phone has room for the first alone. */
export function shortWords(span: Span | null): [what: string, side: string] {
  if (span === null) return [DOING.unheard, ""];
  return [conditionWord(span), SIDE[span.verdict] ?? ""];
}

/** What a span is in short words, from the flow's own side. */
export function conditionWord(span: Span): string {
  return (receives(span) ? RECEIVING[span.doing] : undefined) ?? DOING[span.doing] ?? span.doing;
}

/** Each doing with all short words that spans have for it, in the order of DOING: one colour, a word for either direction. */
export function legendWords(spans: readonly Span[]): [doing: string, words: string][] {
  return Object.keys(DOING).flatMap((doing): [string, string][] => {
    const mine = spans.filter((span) => span.doing === doing);
    const words = new Set(mine.toSorted((a, b) => Number(receives(a)) - Number(receives(b))).map(conditionWord));
    return words.size > 0 ? [[doing, [...words].join(" / ")]] : [];
  });
}

/** What the counters of both ends say, in words; empty where a span is no condition. */
export function sideWords(span: Span): string {
  if (!CONDITIONS.includes(span.doing)) return "";
  if (span.verdict === "overruled") return "its own side; overruled, as it only waits";
  if (span.verdict === "overruled-remote") return "the other side; overruled, as it started it";
  return SIDE[span.verdict] ?? "cannot be told";
}

/** The flow that shows it, as it stood last: "4 → 3, world op 171, channel 0: 8·5·4·4 of 16 chunks". */
export function flowWords(span: Span): string {
  if (!CONDITIONS.includes(span.doing)) return "";
  const arrow = receives(span) ? "←" : "→";
  const peer = span.peer_rank < 0 ? "?" : span.peer_rank;
  const counters = span.counters.join("·");
  return `${span.rank} ${arrow} ${peer}, ${span.comm_name || span.comm_id} op ${span.op}, channel ${span.channel}: ${counters} of ${span.total_chunks} chunks`;
}

/** The condition from the flow's own side. */
export function doingWords(span: Span): string {
  const said = receives(span) ? RECEIVE_WORDS[span.doing] : undefined;
  return said ?? DOING[span.doing] ?? span.doing;
}

function receives(span: Span): boolean {
  return span.direction.startsWith("r");
}

/** The picture's own time on the lanes' frame: moments and ruler are theirs. */
export function frameOf({ from_ns, to_ns }: Standing, lanes: Lanes | null): Lanes {
  const [first, triggered] = [lanes?.first_symptom_ns ?? null, lanes?.triggered_ns ?? null];
  return {
    ...{ from_ns, to_ns, newest_ns: to_ns, first_symptom_ns: first, triggered_ns: triggered },
    ...{ lanes: [], omitted: 0, not_visible: [] },
  };
}
