/* What the server says of fetched epochs, and the stretches of time that are asked of it. */

import type { PlotlyFigure } from "../types";

/** Microseconds since the request that fetched the epochs was made: from, until. */
export type Stretch = [number, number];

export interface EpochsAnswer {
  request: number | null;
  pending: boolean;
  asked_at: string | null;
  rank: number | null;
  group: string;
  by: "rank" | "flow";
  from_us: number;
  until_us: number;
  reaches_us: number[];
  epoch_us: number | null;
  column_us: number | null;
  iteration: number | null;
  iterations: {
    number: number;
    from_us: number;
    until_us: number;
    is_whole: boolean;
    every: number;
    n_ranks: number;
  }[];
  ranks: number[];
  n_ranks: number;
  silent: { rank: number; why: string }[];
  left_out: number;
  source: string;
  figure: PlotlyFigure;
}

export const STRETCH_LEAST_US = 100;
const SILENT_SHOWN = 3;

export const WAYS = [
  { word: "‹", title: "Earlier", by: -0.5 },
  { word: "›", title: "Later", by: 0.5 },
];

/** The stretch, so many of its lengths later. */
export function moved([from, until]: Stretch, by: number): Stretch {
  const step = Math.round((until - from) * by);
  return [from + step, until + step];
}

/** As many times as long, around the same middle. */
export function widened([from, until]: Stretch, times: number): Stretch {
  const length = Math.max(Math.round((until - from) * times), STRETCH_LEAST_US);
  const begin = Math.round((from + until - length) / 2);
  return [begin, begin + length];
}

/** What was dragged over, in the axis' milliseconds, as a stretch. */
export function stretchOf(fromMs: number, untilMs: number): Stretch {
  const [from, until] = [Math.floor(fromMs * 1000), Math.ceil(untilMs * 1000)];
  return until - from < STRETCH_LEAST_US ? widened([from, until], 0) : [from, until];
}

/** Why ranks have nothing, alike ones together. */
export function silentWords(silent: { rank: number; why: string }[]): string {
  const byWhy = new Map<string, number[]>();
  for (const { rank, why } of silent) byWhy.set(why, [...(byWhy.get(why) ?? []), rank]);
  return [...byWhy]
    .map(([why, ranks]) => {
      const more = ranks.length > SILENT_SHOWN ? ` and ${ranks.length - SILENT_SHOWN} more` : "";
      return `Nothing of ${ranks.length === 1 ? "rank" : "ranks"} ${ranks.slice(0, SILENT_SHOWN).join(", ")}${more}: ${why}.`;
    })
    .join(" ");
}
