/* What the server says of a group's bytes on the wire. */

import type { PlotlyFigure } from "../types";

export interface NetworkGroup {
  comm_id: string;
  name: string;
  n_ranks: number;
}

export interface RankOnWire {
  rank: number;
  n_ops: number;
  actual_ms: number;
  lasted_ms: number;
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

export interface NetworkAnswer {
  rank: number | null;
  groups: NetworkGroup[];
  group: string;
  is_custom: boolean;
  started_at: string | null;
  ended_at: string | null;
  measured: Measured;
  ranks: RankOnWire[];
  times: PlotlyFigure;
  rates: PlotlyFigure;
  paths: PlotlyFigure;
  matrix: PlotlyFigure | null;
}

export const APART = 1.25;

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
  if (apart.length === 0)
    return missed
      ? `On the wire the ${of} of this group that were measured are alike.`
      : "On the wire all ranks of this group are alike.";
  const named = apart
    .slice(0, 4)
    .map((row) => row.rank)
    .join(", ");
  const more = apart.length > 4 ? ` and ${apart.length - 4} more` : "";
  const most = apart[0]?.times_median?.toFixed(1);
  const word = apart.length === 1 ? "Rank" : "Ranks";
  return `${word} ${named}${more}: bytes move up to ${most} times as long as at the median rank${missed ? ` of the ${of} that were measured` : ""}.`;
}
