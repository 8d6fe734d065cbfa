/* What somebody typed into settings, read: the changes to send, the same in words, and what is wrong with them. Pure. */

import { quantity } from "../incident/compare";
import type { JobSettings, Overtaken, Setting } from "../types";

/** Text typed for a setting; null: back to its default. */
export type Edits = Readonly<Record<string, string | null>>;

export interface ReadEdits {
  changes: Record<string, number | null>;
  words: string[];
  problems: string[];
}

/** Whether every word that was typed is in its name or in what is said of it. */
export function isSought({ name, about, group }: Setting, typed: string): boolean {
  const said = `${name} ${about} ${group}`.toLowerCase();
  return typed
    .toLowerCase()
    .split(/\s+/)
    .every((word) => said.includes(word));
}

export function settingValue(value: number, unit: string): string {
  if (unit === "B/s") return quantity(value, unit);
  const number = value.toLocaleString("en-US", { maximumSignificantDigits: 6 });
  return unit ? `${number} ${unit}` : number;
}

export function readEdits(settings: readonly Setting[], edits: Edits): ReadEdits {
  const read: ReadEdits = { changes: {}, words: [], problems: [] };
  for (const setting of settings) {
    const text = edits[setting.name];
    if (text === undefined) continue;
    const problem = text === null ? "" : problemOf(setting, text);
    const after = text === null ? setting.default : Number(text);
    if (problem) read.problems.push(problem);
    else if (after !== setting.value || (text === null && setting.overridden)) {
      read.changes[setting.name] = text === null ? null : after;
      const to =
        text === null ? `its default, ${settingValue(after, setting.unit)}` : settingValue(after, setting.unit);
      read.words.push(`${setting.name}: ${settingValue(setting.value, setting.unit)} → ${to}`);
    }
  }
  return read;
}

function problemOf(setting: Setting, text: string): string {
  const { name, low, high, whole } = setting;
  const value = Number(text);
  if (!text.trim() || !Number.isFinite(value)) return `${name} needs a number.`;
  if (whole && !Number.isInteger(value)) return `${name} must be a whole number.`;
  if (value < low || value > high) return `${name} must be ${rangeWords(setting)}.`;
  return "";
}

/** "1 to 600 s", "1 kB/s to 1 TB/s". */
export function rangeWords({ low, high, unit }: Setting): string {
  return `${settingValue(low, unit === "B/s" ? unit : "")} to ${settingValue(high, unit)}`;
}

/** What a refused change says: who was faster with what, and how things are now; null: it was refused for another reason. */
export function overtakenBy(answer: Record<string, unknown>): { overtaken: Overtaken[]; settings: JobSettings } | null {
  const { overtaken, settings } = answer as { overtaken?: Overtaken[]; settings?: JobSettings };
  return Array.isArray(overtaken) && settings ? { overtaken, settings } : null;
}

/** "ada set delta_max_s to 30 s (“long ops”) while you were editing; you want 20 s." */
export function overtakenWords({ name, unit, theirs, yours, changed_by, reason }: Overtaken): string {
  const [their, your] = [theirs, yours].map((value) => (value === null ? "its default" : settingValue(value, unit)));
  const why = reason ? ` (“${reason}”)` : "";
  return `${changed_by} set ${name} to ${their}${why} while you were editing; you want ${your}.`;
}
