/* What the server says of a group's bytes on the wire. */

import { timeOfDay, zoneLabel } from "../state/clock";
import { count, rankRanges } from "../state/words";
import type { PlotlyFigure } from "../types";

export interface NetworkGroup {
  comm_id: string;
  name: string;
  n_ranks: number;
  /** Ops of it that do not end at the chosen rank. */
  unfinished?: number;
}

export interface RankOnWire {
  rank: number;
  n_ops: number;
  /** null: none of its ops has ended. */
  actual_ms: number | null;
  lasted_ms: number | null;
  gb_per_s: number | null;
  /** How many times as long as at the median rank bytes moved. */
  times_median: number | null;
  unfinished: number;
}

export interface Measured {
  n_rows: number;
  sources: string[];
  incomplete_share: number;
  left_out: number;
  /** The granularity law with this job's numbers. */
  sight: string;
  /** "64 of 1,250 nodes" where not all were read. */
  read_of: string;
  /** Bytes of which no op could be told. */
  unowned: { share: number; n_ranks: number; ranks: UnownedRank[] };
  /** Whether ops moved what Appendix B's formulas expect of them. */
  volumes: { n_compared: number; n_other: number; n_unknown: number; says: string };
}

export interface UnownedRank {
  rank: number;
  mb: number;
  connections: number;
  gb_per_s: number | null;
}

/** Ops that ranks have entered and that do not end, as at `at`. */
export interface Unfinished {
  at: string;
  n_ops: number;
  oldest: string;
  entered_at: string | null;
  last_done_at: string | null;
  ranks: number[];
  n_ranks: number;
  n_flows: number;
  /** Members on nodes that were read: all else is of these. */
  n_read: number;
  n_unheard: number;
}

/** Of which ops the comparison is. */
export interface Counted {
  n_ops: number;
  started_at: string | null;
  ended_at: string | null;
  is_before: boolean;
}

export interface NetworkAnswer {
  rank: number | null;
  groups: NetworkGroup[];
  group: string;
  is_custom: boolean;
  started_at: string | null;
  ended_at: string | null;
  unfinished: Unfinished | null;
  counted: Counted;
  measured: Measured;
  ranks: RankOnWire[];
  times: PlotlyFigure;
  rates: PlotlyFigure;
  paths: PlotlyFigure;
  matrix: PlotlyFigure | null;
}

/** Nothing ends any more, or nobody tells whether anything does: what can be compared is over. */
function isPast({ unfinished, counted }: NetworkAnswer): boolean {
  return counted.is_before || (unfinished !== null && (unfinished.n_ops > 0 || isUnheard(unfinished)));
}

function isUnheard({ n_read, n_unheard }: Unfinished): boolean {
  return n_read > 0 && n_unheard === n_read;
}

export const APART = 1.25;
/** Within this of the median on both sides ranks are alike. */
const ALIKE = 1.1;

/** What does not end, in words; "" where every op ends. It stands above what moved: a hang is no network that is fine. */
export function unfinishedWords({ unfinished, groups, group }: NetworkAnswer): string {
  if (!unfinished || unfinished.n_ops === 0) return "";
  const { n_ops, n_ranks, n_flows, oldest, ranks } = unfinished;
  const chosen = groups.find((one) => one.comm_id === group);
  const all = chosen?.n_ranks === n_ranks;
  const every = n_ranks === 2 ? "both ranks" : `all ${n_ranks.toLocaleString("en")} ranks`;
  const who = all && n_ranks > 1 ? every : rankWords(ranks, n_ranks);
  const stand = `${who} ${n_ranks === 1 ? "stands" : "stand"} in ${n_ops === 1 ? "it" : "them"}`;
  const what =
    n_ops === 1
      ? `${oldest} of ${chosen?.name || "this group"} has not ended`
      : `${n_ops} ops of ${chosen?.name || "this group"} have not ended, the first of them ${oldest}`;
  const since = unfinished.last_done_at ?? unfinished.entered_at;
  const flows = n_flows > 0 ? `, ${count(n_flows, "flow stands", "flows stand")} still` : "";
  const whose = chosen && unfinished.n_read < chosen.n_ranks ? ofRead(unfinished.n_read) : "of the group";
  const when = since ? `, no op ${whose} has ended since ${timeOfDay(Date.parse(since))} ${zoneLabel()}` : "";
  return `${what}: ${stand}${when}${flows}.`;
}

function rankWords(ranks: number[], n: number): string {
  const said = rankRanges(ranks.slice(0, 12));
  return n === 1 ? `rank ${said}` : `ranks ${said}${n > 12 ? ` and ${n - 12} more` : ""}`;
}

/** Up to when ops ended that are counted: of what has not ended nothing is told. */
export function countedWords({ counted }: NetworkAnswer): string {
  if (counted.n_ops === 0) return "";
  const [from, until] = [counted.started_at, counted.ended_at].map((at) => at && timeOfDay(Date.parse(at)));
  const when = from && until ? ` from ${from} to ${until} ${zoneLabel()}` : "";
  const why = counted.is_before ? ", all before the first symptom: none has ended since" : "";
  return `Times and rates below are of the ${count(counted.n_ops, "op")} that ended${when}${why}.`;
}

/** Of how many ranks nobody tells what they stand in; "" where all that were read are heard. */
export function unheardWords({ unfinished, groups, group }: NetworkAnswer): string {
  if (!unfinished || unfinished.n_unheard === 0) return "";
  const { at, n_read, n_unheard } = unfinished;
  const total = groups.find((one) => one.comm_id === group)?.n_ranks ?? n_read;
  const those = n_read < total ? `${n_read.toLocaleString("en")} ranks that were read` : count(n_read, "rank");
  const of = isUnheard(unfinished) ? `any of the ${those}` : `${n_unheard.toLocaleString("en")} of the ${those}`;
  return `As at ${timeOfDay(Date.parse(at))} ${zoneLabel()} nothing is heard of ${of}: what they stand in is not known.`;
}

function ofRead(n: number): string {
  return `of the ${count(n, "rank")} that ${n === 1 ? "was" : "were"} read`;
}

/** What stands above the pictures: who stands out, or that nobody does. */
export function headline(answer: NetworkAnswer): string {
  const measured = answer.ranks.filter((row) => row.times_median !== null);
  if (measured.length === 0 && answer.measured.unowned.n_ranks > 0)
    return "Bytes of this group moved, and of which op they were could not be told: ranks cannot be compared.";
  if (measured.length === 0) return "Nothing of this group was measured on the wire in this time.";
  const apart = measured.filter((row) => (row.times_median ?? 0) >= APART);
  const total = answer.groups.find((group) => group.comm_id === answer.group)?.n_ranks ?? measured.length;
  const missed = measured.length < total;
  const of = `${measured.length.toLocaleString("en")} of ${total.toLocaleString("en")} ranks`;
  if (measured.length === 1 && missed) return `Of ${of} bytes were measured: there is nobody to compare it with.`;
  const [then, are] = isPast(answer) ? ["Until then, on the wire,", "were"] : ["On the wire", "are"];
  if (apart.length === 0) {
    const times = measured.map((row) => row.times_median ?? 1);
    const [least, most] = [Math.min(...times), Math.max(...times)];
    const who = missed ? `the ${of} of this group that were measured` : "all ranks of this group";
    if (most <= ALIKE && least >= 1 / ALIKE) return `${then} ${who} ${are} alike.`;
    const none = missed ? `none of ${who}` : "no rank of this group";
    const [stands, move] = isPast(answer) ? ["stood", "moved"] : ["stands", "move"];
    return `${then} ${none} ${stands} out: bytes ${move} ${least.toFixed(2)} to ${most.toFixed(2)} times as long as at the median rank.`;
  }
  const named = apart
    .slice(0, 4)
    .map((row) => row.rank)
    .join(", ");
  const more = apart.length > 4 ? ` and ${apart.length - 4} more` : "";
  const most = apart[0]?.times_median?.toFixed(1);
  const word = apart.length === 1 ? "Rank" : "Ranks";
  const moved = isPast(answer) ? "until then bytes moved" : "bytes move";
  return `${word} ${named}${more}: ${moved} up to ${most} times as long as at the median rank${missed ? ` of the ${of} that were measured` : ""}.`;
}
