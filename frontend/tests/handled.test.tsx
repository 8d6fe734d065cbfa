/* Who has an incident, and whom it is assigned to: two things, told in the same words wherever an incident stands. */

import { render } from "preact";
import { act } from "preact/test-utils";
import { afterEach, expect, it } from "vitest";
import { Rows } from "../src/list/Rows";
import type { IncidentRow } from "../src/live/rows";
import { IncidentCard } from "../src/parts/IncidentCard";
import { assignedTo, whoHas } from "../src/state/status";
import { makeIncident } from "./fixtures";

const NOTHING = () => undefined;
const TAKEN = makeIncident({ state: "acknowledged", acknowledged_by: "admin", assignee: "bea" });
const said = (row: IncidentRow) => [whoHas(row), assignedTo(row)];

afterEach(() => act(() => render(null, document.body)));

it("is told apart", () => {
  expect(said(makeIncident())).toEqual(["", ""]);
  expect(said(makeIncident({ assignee: "bea" }))).toEqual(["", "bea"]);
  expect(said(TAKEN)).toEqual(["admin", "bea"]);
  expect(said({ ...TAKEN, assignee: "admin" })).toEqual(["admin", ""]);
  expect(said({ ...TAKEN, state: "resolved" })).toEqual(["", ""]);
});

it("is said on Now as in the list", () => {
  const marks = { rows: [], has: () => false, toggle: NOTHING, all: NOTHING, clear: NOTHING };
  const selection = { chosen: null, choose: NOTHING };
  for (const shown of [
    <IncidentCard key="now" row={TAKEN} job={undefined} chosen={false} onChoose={NOTHING} />,
    <Rows key="list" rows={[TAKEN]} selection={selection} marks={marks} filters="" />,
  ]) {
    act(() => render(shown, document.body));
    expect(document.body.textContent).toContain("admin has it");
    expect(document.body.textContent).toContain("assigned to bea");
    expect(document.body.textContent).not.toContain("bea has it");
  }
});
