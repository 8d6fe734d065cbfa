/*
 * One act on many incidents. While it is under way it cannot be asked again; afterwards the rows are as the server says,
 * and what could not be done is told, incident by incident.
 */

import { signal } from "@preact/signals";
import { actOnMany, type BulkVerb, type Outcome } from "../handling";
import type { IncidentRow } from "../live/rows";
import { show } from "./actions";
import { notify } from "./notices";
import { count } from "./words";

export const bulkUnderWay = signal(false);

const DONE: Record<BulkVerb, string> = {
  acknowledge: "acknowledged",
  unacknowledge: "un-acknowledged",
  resolve: "resolved",
  reopen: "reopened",
  comment: "commented",
  assign: "assigned",
  attach: "attached",
  detach: "detached",
};

/** Whether all of it was done; a refusal of all is a notice. */
export async function doToMany(
  verb: BulkVerb,
  rows: readonly IncidentRow[],
  more: Record<string, unknown> = {},
): Promise<boolean> {
  return doFirst(verb, rows, more).catch((error: Error) => {
    notify(error.message, "bad", "bulk");
    return false;
  });
}

/** For a dialog, which waits for the answer: a refusal of all is thrown. */
export async function doFirst(
  verb: BulkVerb,
  rows: readonly IncidentRow[],
  more: Record<string, unknown> = {},
): Promise<boolean> {
  if (bulkUnderWay.value || rows.length === 0) return false;
  bulkUnderWay.value = true;
  try {
    const { outcomes, n_done } = await actOnMany(verb, rows, more);
    for (const { incident } of outcomes) if (incident) show(incident);
    notify(bulkWords(verb, n_done, outcomes), n_done === outcomes.length ? "calm" : "bad", "bulk");
    return n_done === outcomes.length;
  } finally {
    bulkUnderWay.value = false;
  }
}

/** "#1, #2, #3 and 4 more" */
function listed(numbers: readonly string[]): string {
  const more = numbers.length - 3;
  return more > 0 ? `${numbers.slice(0, 3).join(", ")} and ${more} more` : numbers.join(", ");
}

/** "2 incidents acknowledged. #12, #14: it is resolved …": a reason that several share is said once. */
export function bulkWords(verb: BulkVerb, nDone: number, outcomes: readonly Outcome[]): string {
  const refused = outcomes.filter((one) => one.code);
  const said = [nDone > 0 || refused.length === 0 ? `${count(nDone, "incident")} ${DONE[verb]}.` : ""];
  const byReason = [...new Set(refused.map(({ error }) => error))].map(
    (error) => [error, refused.filter((one) => one.error === error).map(({ number }) => `#${number}`)] as const,
  );
  for (const [error, numbers] of byReason.slice(0, 3)) said.push(`${listed(numbers)}: ${error}`);
  const untold = byReason.slice(3).reduce((sum, [, numbers]) => sum + numbers.length, 0);
  if (untold > 0) said.push(`And ${untold} more were refused.`);
  return said.filter(Boolean).join(" ");
}
