/* Ad-hoc questions about a job's ops. The whole question is in the address, as the server wants it. */

import { ask, takeAway } from "../api";
import type { PlotlyFigure } from "../types";

export interface QuestionAnswer {
  attempt: number;
  attempts: number[];
  from_ms: number;
  to_ms: number;
  columns: { name: string; kind: "time" | "text" | "number"; unit: string }[];
  rows: (string | number | null)[][];
  /** What was read, in a sentence. */
  rests_on: string;
  left_out: number;
  step_s: number;
  /** The column that was asked for; those before it name the row. */
  value_at: number;
  figure: PlotlyFigure;
  offered: { kinds: string[]; families: string[]; communicators: string[] };
}

/** What of the address is the question. */
export const ASKED = ["measure", "of", "kind", "comm", "per", "from", "to", "attempt"] as const;

export function questionOf(address: URLSearchParams): string {
  const asked = new URLSearchParams();
  for (const name of ASKED) {
    const given = address.get(name);
    if (given) asked.set(name, given);
  }
  return asked.size ? `?${asked}` : "";
}

export const readAnswer = (job: number, question: string) => ask<QuestionAnswer>(`jobs/${job}/question${question}`);
export const takeAnswer = (job: number, question: string, kind: "csv" | "parquet") =>
  takeAway(`jobs/${job}/question.${kind}${question}`, `job-${job}.${kind}`);
