/*
 * What is shown as an incident's state: resolved, attached, acknowledged, silenced, open, the first that holds. The
 * server's lists count by the same order (console/incidents/lists/listing.py).
 */

import type { IncidentRow } from "../live/rows";

export type ShownState = "open" | "silenced" | "acknowledged" | "attached" | "resolved";

export function shownState(row: IncidentRow, nowMs: number): ShownState {
  if (row.state === "resolved") return "resolved";
  if (row.attached_to !== null) return "attached";
  if (row.state === "acknowledged") return "acknowledged";
  return isSilenced(row, nowMs) ? "silenced" : "open";
}

export function isSilenced(row: IncidentRow, nowMs: number): boolean {
  return row.silenced_until !== null && Date.parse(row.silenced_until) > nowMs;
}

/** Who has it: who acknowledged it; "" nobody. */
export function whoHas(row: IncidentRow): string {
  return row.state === "acknowledged" ? (row.acknowledged_by ?? "") : "";
}

/** Whom it is assigned to beside who has it; "" nobody. */
export function assignedTo(row: IncidentRow): string {
  return row.state === "resolved" || row.assignee === whoHas(row) ? "" : row.assignee;
}

/** Whether looks still search for the cause: none is named, and they see the trouble. */
export function isSearching(row: Pick<IncidentRow, "certainty" | "condition">): boolean {
  return row.certainty === "suspected" && row.condition !== "clear";
}

/** Whether it waits for somebody, or somebody has it: neither silenced nor part of another. */
export function isLoud(row: IncidentRow, nowMs: number): boolean {
  return ["open", "acknowledged"].includes(shownState(row, nowMs));
}
