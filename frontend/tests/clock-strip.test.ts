/* The clock of an incident keeps what happened: reopening takes back who has it, not that somebody had. */

import { expect, it } from "vitest";
import { acknowledgedWord, firstAcknowledged } from "../src/incident/ClockStrip";
import type { IncidentRow, TimelineRow } from "../src/live/rows";
import { faultWords, inOrder } from "../src/state/words";

const row = (acknowledged_at: string | null) => ({ acknowledged_at }) as IncidentRow;
const entry = (verb: string, at: string) => ({ verb, at }) as TimelineRow;

it("keeps the first acknowledgement of a reopened incident", () => {
  const timeline = [entry("opened", "T1"), entry("acknowledged", "T2"), entry("reopened", "T3")];
  expect(firstAcknowledged(row(null), timeline)).toBe("T2");
  expect(firstAcknowledged(row("T4"), [...timeline, entry("acknowledged", "T4")])).toBe("T2");
});

it("does not say that somebody has it who has it no longer", () => {
  const timeline = [entry("acknowledged", "T2"), entry("reopened", "T3")];
  expect(acknowledgedWord(row(null), timeline)).toBe("First acknowledged");
  expect(acknowledgedWord(row("T2"), timeline)).toBe("Acknowledged");
  expect(acknowledgedWord(row(null), [])).toBe("Acknowledged");
});

it("says that the first is not the one that holds", () => {
  const timeline = [entry("acknowledged", "T2"), entry("unacknowledged", "T3"), entry("acknowledged", "T4")];
  expect(acknowledgedWord(row("T4"), timeline)).toBe("First acknowledged");
});

it("says not yet before anybody did", () => {
  expect(firstAcknowledged(row(null), [entry("opened", "T1")])).toBe(null);
});

it("says of a hang that it stands still", () => {
  expect(faultWords("computation_fail_slow", "failure")).toBe("computation stands still");
  expect(faultWords("computation_fail_slow", "straggler")).toBe("computation slowed down");
});

it("orders names as people do", () => {
  expect(inOrder(["pp_3", "dp_1", "pp_10", "dp_0", "pp_2"])).toEqual(["dp_0", "dp_1", "pp_2", "pp_3", "pp_10"]);
});
