/*
 * Where dumps are read from and asked for: an incident, whose nodes answer by and by, or a bundle somebody dropped.
 * The two differ by their address only. Kept apart from api.ts, as few pages need it and the first script is small.
 */

import { ask } from "../api";
import type { BundleAnswer, DumpRequest, DumpsAnswer, RankStacksAnswer, RecorderAnswer, StacksAnswer } from "./shapes";

/** "incidents/12" or "bundles/7f3a". */
export type Source = string;

export const readDumps = (source: Source) => ask<DumpsAnswer>(`${source}/dumps`);
export const askDumps = (source: Source) => ask<DumpRequest>(`${source}/dumps`, "POST", {});
export const readStacks = (source: Source, request: number) => ask<StacksAnswer>(`${source}/stacks?request=${request}`);
export const readRecorder = (source: Source, request: number) =>
  ask<RecorderAnswer>(`${source}/recorder?request=${request}`);

export function readRankStacks(source: Source, rank: number, request: number | null, against: number | null) {
  const query = new URLSearchParams();
  if (request !== null) query.set("request", String(request));
  if (against !== null) query.set("against", String(against));
  const asked = query.size > 0 ? `?${query}` : "";
  return ask<RankStacksAnswer>(`${source}/stacks/${rank}${asked}`);
}

export const readBundle = (id: string) => ask<BundleAnswer>(`bundles/${id}`);
