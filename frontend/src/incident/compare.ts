/*
 * Usual against now, as numbers for bars and words: one scale for all that share a unit, so that lengths may be
 * compared, and by how much each grew. And the steps by which a finding covers more and more. Pure.
 */

import { spanWords } from "../state/clock";
import type { Compared, Cover, Symptom } from "../types";

export interface BarRow extends Compared {
  /** Shares of the longest bar of this unit, 0 to 1. */
  usualShare: number;
  nowShare: number;
  change: string;
  /** What grew most of its own, and by more than a quarter: where to look first. */
  isWorst: boolean;
}

const WORTH_SAYING = 1.1;
const WORST_FROM = 1.25;
/** Waiting for others grows at every rank of a slow job: it is never where the time is lost, however long it is. */
const WAITS = new Set(["peers' data", "receiver's credits"]);

export function barRows(rows: readonly Compared[], marksWorst: boolean): BarRow[] {
  const longest = new Map<string, number>();
  for (const { unit, usual, now } of rows) {
    longest.set(unit, Math.max(longest.get(unit) ?? 0, Math.abs(usual), Math.abs(now)));
  }
  const growth = (row: Compared) =>
    !WAITS.has(row.what) && row.now > row.usual * WORST_FROM ? (row.now - row.usual) / (longest.get(row.unit) || 1) : 0;
  const most = Math.max(...rows.map(growth));
  return rows.map((row) => ({
    ...row,
    usualShare: Math.abs(row.usual) / (longest.get(row.unit) || 1),
    nowShare: Math.abs(row.now) / (longest.get(row.unit) || 1),
    change: changeWords(row),
    isWorst: marksWorst && most > 0 && growth(row) === most,
  }));
}

/** "3.2 ×" the usual, "0.4 ×", "as usual". */
export function changeWords({ usual, now }: Pick<Compared, "usual" | "now">): string {
  if (usual === now) return "as usual";
  if (now === 0) return "none";
  if (usual <= 0 || now < 0) return usual === 0 ? "usually none" : "";
  const times = now / usual;
  if (times < WORTH_SAYING && times > 1 / WORTH_SAYING) return "as usual";
  return `${times >= 10 ? Math.round(times) : Number(times.toPrecision(2))} ×`;
}

/** By how much a slow job is slower: "an iteration takes 412 ms, usually 290 ms (+42 %)"; "" of other trouble. */
export function slowerWords({ numbers }: Pick<Symptom, "numbers">): string {
  const { iteration_s: now, iteration_usual_s: usual } = numbers;
  if (!now || !usual || now <= usual) return "";
  const much = now < 2 * usual ? `+${Math.round((100 * (now - usual)) / usual)} %` : changeWords({ usual, now });
  return `an iteration takes ${quantity(now, "s")}, usually ${quantity(usual, "s")} (${much})`;
}

const SPAN_MS: Record<string, number> = { ns: 1e-6, us: 1e-3, µs: 1e-3, ms: 1, s: 1000 };
const BIG = ["", "k", "M", "G", "T", "P"];

/** A number with its unit as people read it: 0.0023 s → 2.3 ms, 23400000000 B/s → 23.4 GB/s. */
export function quantity(value: number, unit: string): string {
  if (unit in SPAN_MS) return shortSpan(value * SPAN_MS[unit]);
  const bytes = /^(?:bytes?|B)(\/s)?$/.exec(unit);
  if (bytes) return withPrefix(value, `B${bytes[1] ?? ""}`);
  const number = value.toLocaleString("en-US", { maximumSignificantDigits: Math.abs(value) < 1000 ? 3 : 6 });
  return unit ? `${number} ${unit}` : number;
}

function shortSpan(ms: number): string {
  const size = Math.abs(ms);
  if (size === 0) return "0 ms";
  if (size < 0.001) return `${Number((ms * 1e6).toPrecision(3))} ns`;
  if (size < 1) return `${Number((ms * 1e3).toPrecision(3))} µs`;
  if (size < 100) return `${Number(ms.toPrecision(3))} ms`;
  return spanWords(ms);
}

function withPrefix(value: number, unit: string): string {
  const step = Math.min(BIG.length - 1, Math.max(0, Math.floor(Math.log10(Math.abs(value) || 1) / 3)));
  return `${Number((value / 1000 ** step).toPrecision(3))} ${BIG[step]}${unit}`;
}

const KIND: Record<string, [one: string, many: string]> = {
  nic: ["NIC", "NICs"],
  "flow in progress": ["flow in progress", "flows in progress"],
};

/** "1 of 32 flows of rank 4", "all 8 ranks of node-1". */
export function coverWords({ kind, n, of, whole }: Cover): string {
  const [one, many] = KIND[kind] ?? [kind, `${kind}s`];
  const where = whole ? ` of ${whole}` : "";
  if (of === 1) return `the only ${one}${where}`;
  const number = (count: number) => count.toLocaleString("en-US");
  return n === of ? `all ${number(of)} ${many}${where}` : `${number(n)} of ${number(of)} ${many}${where}`;
}
