/* Now's hint about the demo follows its job: before the fault, after it, and when the job is over. */

import { render } from "preact";
import { act } from "preact/test-utils";
import { afterEach, expect, it } from "vitest";
import type { IncidentRow, JobRow } from "../src/live/rows";
import { DemoHint } from "../src/pages/NowPage";

const job = (changes: Partial<JobRow> = {}): JobRow => ({
  ...{ id: 1, name: "demo", team: "training", attempt: 1, state: "running", n_ranks: 8, world_size: 8, n_nodes: 4 },
  ...{ nodes_reporting: 4, last_data_at: null, ops_per_s: 1, op_interval_ms: 1, looked_at: null, incident: null },
  ...changes,
});

const incident = (changes: Partial<IncidentRow> = {}): IncidentRow =>
  ({ number: 9, job_id: 1, attempt: 1, state: "open", condition: "firing", ...changes }) as IncidentRow;

function said(jobs: JobRow[], incidents: IncidentRow[]): string {
  act(() => render(<DemoHint jobs={jobs} incidents={incidents} />, document.body));
  return document.body.textContent ?? "";
}

afterEach(() => act(() => render(null, document.body)));

it("promises the fault only while it is still to come", () => {
  expect(said([job()], [])).toContain("a fault is injected about 30 s after the job starts");
  expect(said([job()], [incident({ condition: "clear", state: "resolved" })])).toContain("The demo’s fault is over.");
  expect(said([job({ state: "ended" })], [])).toContain("The demo’s job is over.");
  expect(said([], [])).toContain("make run again");
});

it("does not take an earlier start for this one", () => {
  const before = incident({ state: "resolved", condition: "clear" });
  expect(said([job({ attempt: 2 })], [before])).toContain("a fault is injected about 30 s");
});

it("does not call a fault over that lasts, whatever people did to its incident", () => {
  for (const changes of [{ state: "resolved" as const }, { silenced_until: "2030-01-01T00:00:00Z" }]) {
    expect(said([job()], [incident(changes)])).toContain(
      "The demo’s fault lasts: its job still hangs, under incident 9",
    );
  }
});
