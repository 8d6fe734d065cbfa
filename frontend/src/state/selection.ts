/*
 * The row that j and k walk in a list of incidents. Nothing is selected at first, so that no key acts on a row nobody
 * chose; the selection is an incident's number, because new incidents move rows under the reader's eyes.
 */

import { useState } from "preact/hooks";
import type { IncidentRow } from "../live/rows";
import { actOn } from "./actions";
import { go } from "./address";
import { useKeys } from "./keys";
import { mayAct } from "./team";

export interface Selection {
  chosen: number | null;
  choose: (number: number) => void;
}

/** The incident `step` rows further; the first one when none of `rows` is selected. */
export function neighbour(rows: readonly IncidentRow[], chosen: number | null, step: number): number | null {
  if (rows.length === 0) return null;
  const at = rows.findIndex((row) => row.number === chosen);
  return rows[at < 0 ? 0 : Math.max(0, Math.min(rows.length - 1, at + step))].number;
}

interface SelectionOptions {
  onActed?: () => void;
  href?: (row: IncidentRow) => string;
  /** What acknowledging does in place of acknowledging the selected row. */
  acknowledge?: () => void;
}

export function useSelection(rows: readonly IncidentRow[], options: SelectionOptions = {}): Selection {
  const { onActed, href = (row) => `/incidents/${row.number}`, acknowledge } = options;
  const [chosen, choose] = useState<number | null>(null);
  const row = rows.find((one) => one.number === chosen);
  useKeys({
    j: () => choose(neighbour(rows, chosen, 1)),
    k: () => choose(neighbour(rows, chosen, -1)),
    Enter: () => row && go(href(row)),
    a: () => {
      if (acknowledge) acknowledge();
      else if (row?.state === "open" && mayAct.value) void actOn(row, "acknowledge").then(onActed);
    },
  });
  return { chosen: row ? row.number : null, choose };
}
