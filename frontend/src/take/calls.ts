/* What is taken away from an incident: evidence bundles and the draft of a post-mortem. */

import { ask, takeAway } from "../api";

export interface EvidenceRow {
  id: number;
  state: "waiting" | "building" | "done" | "failed";
  /** What is being put in. */
  step: string;
  progress: number;
  wanted_by: string;
  wanted_at: string;
  done_at: string | null;
  kept_until: string;
  revision: number;
  /** Whether it holds the newest diagnosis. */
  is_newest: boolean;
  size_bytes: number;
  n_files: number;
  /** What did not go in, and why. */
  left_out: string[];
  failed: string;
}

export const readEvidence = (number: number) =>
  ask<{ bundles: EvidenceRow[]; may: boolean }>(`incidents/${number}/evidence`);
export const buildEvidence = (number: number) => ask<EvidenceRow>(`incidents/${number}/evidence`, "POST", {});
export const takeEvidence = (number: number, id: number) =>
  takeAway(`incidents/${number}/evidence/${id}`, `incident-${number}-evidence.zip`);

export async function readPostMortem(number: number): Promise<string> {
  const answer = await fetch(`/api/v1/incidents/${number}/post-mortem`, { credentials: "same-origin" }).catch(() => {
    throw new Error(
      "The server cannot be reached, so there is no draft yet. Try again when the mark at the top says Live.",
    );
  });
  if (!answer.ok) throw new Error(`The draft cannot be read: the server answered ${answer.status}.`);
  return answer.text();
}

/** 1.5 MB, 300 kB: sizes as people say them. */
export function sizeWords(bytes: number): string {
  if (bytes < 1000) return `${bytes} B`;
  const [value, unit] = bytes < 1e6 ? [bytes / 1e3, "kB"] : bytes < 1e9 ? [bytes / 1e6, "MB"] : [bytes / 1e9, "GB"];
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${unit}`;
}
