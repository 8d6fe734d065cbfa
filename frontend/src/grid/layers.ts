/*
 * Colour layers of the grid: a value of every rank beside its state, as the server sends them. Pure: which colour a value
 * has, and what is said of it. One hue from light to dark, or from dark to light on dark ground: who tells colours badly
 * sees the same. Nobody of whom nothing is known has a colour of that scale.
 */

import { answered } from "../api";
import { quantity } from "../incident/compare";
import type { GridColumns } from "../types";
import type { Cells } from "./paint";
import type { Source } from "./past";

export type By = "op_lag" | "stack_class" | "bandwidth" | "stage_lateness";

export interface LayerClass {
  said: string;
  n_ranks: number;
  is_most: boolean;
}

export interface Layer {
  by: By;
  unit: string;
  /** When it was measured; null: nothing is known. */
  at: string | null;
  /** Where parts are of different times, when the newest was measured. */
  until: string | null;
  says: string;
  /** Why nothing is known of any rank; "" else. */
  nothing: string;
  n_unknown: number;
  low: number | null;
  middle: number | null;
  high: number | null;
  /** Where the colour scale ends. */
  full: number | null;
  /** By rank; of stack classes a place in `classes`. */
  value: (number | null)[];
  note: { texts: string[]; at: number[] };
  classes: LayerClass[];
  /** Asked again it says the same. */
  is_settled: boolean;
}

export const LAYER_WORD: Record<By, string> = {
  op_lag: "Op lag",
  stack_class: "Stack class",
  bandwidth: "Bandwidth",
  stage_lateness: "Stage lateness",
};

/** Colours of the scale; the first is nothing at all, and what is below it. */
export const LEVELS = 7;
/** Classes with a colour and hatch of their own; the others share the last. */
const MARKS = 6;
const UNKNOWN = "unknown";

export function isBy(word: string | null): word is By {
  return word !== null && word in LAYER_WORD;
}

export async function readLayer(source: Source, by: By, atMs: number | null): Promise<Layer> {
  // As text: a number of this size would be rounded.
  const at = atMs === null ? "" : `&at_ns=${Math.round(atMs)}000000`;
  return (await answered(`${source}/grid/layer?by=${by}${at}`)).json();
}

/** Which colour of the scale a value has, 0 … LEVELS − 1. Of what is counted one is more than none; what is measured is never quite 0. */
export function levelOf(value: number, full: number, isCounted = false): number {
  if (value <= 0 || full <= 0) return 0;
  const share = Math.min(1, value / full) * (LEVELS - 1);
  return isCounted ? Math.ceil(share) : Math.round(share);
}

export function classMark(layer: Layer, place: number): string {
  return layer.classes[place]?.is_most ? "same" : `class-${Math.min(place + 1, MARKS)}`;
}

/** States of whom nothing is heard: they keep their hatch over what was measured of them before. */
export const UNHEARD: readonly string[] = ["dead", "silent", "unknown"];

/** The cells of `columns` as the layer colours them; "level-0 dead" where its rank has died since. */
export function paintedBy(columns: GridColumns, layer: Layer): Cells & { state: Uint16Array } {
  const marks = layer.by === "stack_class" ? layer.classes.map((_, place) => classMark(layer, place)) : SCALE;
  const states = [...marks, ...UNHEARD.flatMap((over) => marks.map((mark) => `${mark} ${over}`)), UNKNOWN];
  const hatches = columns.states.map((one) => (UNHEARD.indexOf(one) + 1) * marks.length);
  const full = layer.full ?? 0;
  const state = new Uint16Array(columns.rank.length);
  for (let i = 0; i < state.length; i++) {
    const value = layer.value[columns.rank[i]] ?? null;
    if (value === null) state[i] = states.length - 1;
    else {
      const mark = layer.by === "stack_class" ? value : levelOf(value, full, layer.by === "op_lag");
      state[i] = mark + (hatches[columns.state[i]] ?? 0);
    }
  }
  return { states, state, rank: columns.rank };
}

const SCALE = Array.from({ length: LEVELS }, (_, level) => `level-${level}`);

/** What the layer says of a rank: "40 ops behind, in dp0". */
export function valueWords(layer: Layer, rank: number): string {
  const value = layer.value[rank] ?? null;
  const note = layer.note.texts[layer.note.at[rank] ?? -1] ?? "";
  if (value === null) return `unknown: ${note || layer.nothing || "nothing is known of it"}`;
  if (layer.by === "stack_class") return layer.classes[value]?.said ?? note;
  return [measure(layer, value), note].filter(Boolean).join(", ");
}

function measure({ by, unit }: Layer, value: number): string {
  if (by === "op_lag") return value === 0 ? "as far as the furthest" : `${opWords(value)} behind`;
  if (by === "stage_lateness") return latenessWords(value);
  return quantity(value, unit);
}

const opWords = (n: number) => `${n.toLocaleString("en-US")} ${n === 1 ? "op" : "ops"}`;

function latenessWords(ms: number): string {
  if (ms === 0) return "as the median rank";
  return ms > 0 ? `${quantity(ms, "ms")} late` : `${quantity(-ms, "ms")} ahead`;
}

/** A number of the legend, with its unit. */
export function legendWords({ by, unit }: Layer, value: number): string {
  return by === "op_lag" ? opWords(value) : quantity(value, unit);
}

/** Lets a table put the most telling first: stack classes as they stand, numbers from the most down, unknown last. */
export function tellingFirst(layer: Layer): (rank: number) => number {
  const sign = layer.by === "stack_class" ? 1 : -1;
  return (rank) => {
    const value = layer.value[rank] ?? null;
    return value === null ? Number.MAX_VALUE : sign * value;
  };
}
