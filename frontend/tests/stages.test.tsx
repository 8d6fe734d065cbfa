/* The tab of stages: what a window says in a sentence, whom to profile, and what stands there when nothing is recorded. */

import { render } from "preact";
import { act } from "preact/test-utils";
import { describe, expect, it, vi } from "vitest";
import { StagesPanel } from "../src/stages/StagesPanel";
import {
  beforeWords,
  headline,
  labelWords,
  ms,
  percent,
  type StageWindow,
  type StageWindowRow,
  type StageWindows,
  short,
  standingWords,
} from "../src/stages/shapes";
import { box } from "./box";

const FIGURE = { data: [], layout: {}, config: {}, text: "In words." };

function row(changes: Partial<StageWindowRow> = {}): StageWindowRow {
  return {
    id: 7,
    role: "",
    started_at: "2026-11-22T17:00:00.000Z",
    ended_at: "2026-11-22T17:00:40.000Z",
    first_step: 840,
    last_step: 959,
    n_ranks: 8,
    verdict: "routed",
    labels: ["frontier_accounting", "likely_sync_wait"],
    is_strong: true,
    stage: "data.next_wait",
    leader: 3,
    step_s: 0.409,
    usual_s: 0.212,
    shares: { "data.next_wait": 0.51 },
    next_look: "Profile rank 3 in data.next_wait; it leads the exposed time of the group.",
    ...changes,
  };
}

function one(changes: Partial<StageWindow> = {}): StageWindow {
  return {
    window: row(),
    labels: [{ label: "likely_sync_wait", meaning: "One rank ends this stage late." }],
    report: {
      shares: { "data.next_wait": 0.51, "model.backward_cpu_wall": 0.24 },
      gains: { "data.next_wait": 0 },
      gain_baseline: "reference",
      routing: ["data.next_wait", "model.backward_cpu_wall"],
      co_critical_stages: [],
      downgrades: ["Something was missing."],
      fits_wait_model: true,
      why: "8 ranks of one role",
      n_steps: 120,
      n_ranks: 8,
      at: { leader: 3, lead_s: 0.2, tied: [3], n_tied: 1, lag_s: 0.2, lag_increase_s: 0.2 },
    },
    verdict: { verdict: "routed", growth: {}, entered: null, next_look: row().next_look },
    closed: "120 steps",
    steps: FIGURE,
    ranks: FIGURE,
    median: FIGURE,
    by_stage: [{ stage: "data.next_wait", p50_ms: 8.3, p95_ms: 208, max_ms: 209, p50_share: 0.02, share: 0.51 }],
    summaries: { "per-stage max": { "data.next_wait": 0.34 } },
    profile: {
      rank: 3,
      node: "node-1",
      pid: 1003,
      stage: "data.next_wait",
      commands: ["ssh node-1 py-spy record --pid 1003"],
    },
    ...changes,
  };
}

describe("what a window says", () => {
  it("names the stage, its share and the rank", () => {
    expect(headline(one())).toBe(
      "A step takes 409 ms, usually 212 ms; data has 51 % of the exposed time, and rank 3 leaves it last, 200 ms after everybody else.",
    );
  });

  it("says when nobody leads, and when nothing is exposed", () => {
    const nobody = one({ window: row({ leader: null, usual_s: null }) });
    expect(headline(nobody)).toBe(
      "A step takes 409 ms; data has 51 % of the exposed time, and no rank leaves it clearly last.",
    );
    const report = { ...one().report, routing: [] };
    expect(headline(one({ report }))).toContain("too little time is exposed");
  });

  it("says who enters last where all ranks are alike, and where forward spills over", () => {
    const entered = { rank: 5, late_ms: 119.6, n_steps: 118, of: 120, settled: "model.fwd_loss_cpu_wall" };
    const verdict = { ...one().verdict, entered };
    const report = { ...one().report, routing: ["model.backward_cpu_wall"] };
    expect(headline(one({ report, verdict }))).toContain("rank 5 is late in forward, which the host sees in backward");
    const alike = { ...report, at: { ...report.at, leader: null, lead_s: 0 } };
    const tie = { ...verdict, entered: { ...entered, settled: "" } };
    expect(headline(one({ window: row({ leader: 5 }), report: alike, verdict: tie }))).toContain(
      "rank 5 enters the ops last by 120 ms",
    );
  });

  it("is in the past tense of a time before the hang, and says which", () => {
    const standing = { standing_since: "2026-11-22T17:01:11.000Z" } as StageWindows;
    const before = beforeWords(row(), standing);
    expect(headline(one(), before)).toBe(
      "Before the hang (17:00:00–17:00:40 UTC) a step took 409 ms, usually 212 ms; data had 51 % of the exposed time, and rank 3 left it last, 200 ms after everybody else.",
    );
    expect(standingWords({ ...standing, windows: [row()] })).toContain(
      "No op has ended since 17:01:11 UTC, so no step has either",
    );
    const after = row({ started_at: "2026-11-22T18:00:00.000Z", ended_at: "2026-11-22T18:01:00.000Z" });
    expect(beforeWords(after, standing)).toBe("");
    expect(standingWords({ ...standing, windows: [after] })).toBe("");
  });

  it("tells windows before the first symptom of a job that goes on from those after it", () => {
    const slow = { first_symptom_at: "2026-11-22T17:00:50.000Z" } as StageWindows;
    expect(beforeWords(row(), slow)).toBe("Before the first symptom (17:00:00–17:00:40 UTC)");
    expect(beforeWords(row({ ended_at: "2026-11-22T17:01:20.000Z" }), slow)).toBe("");
    expect(beforeWords(row(), {} as StageWindows)).toBe("");
    expect(standingWords({ windows: [row()] })).toBe("");
  });

  it("says of a hang that is over that it was, and of one that nobody tells of that it is not known", () => {
    const over = { standing_since: "2026-11-22T17:01:11.000Z", standing_until: "2026-11-22T17:03:00.000Z" };
    expect(standingWords({ ...over, windows: [row()] })).toBe(
      "No op ended from 17:01:11 to 17:03:00 UTC, so no step did either: what stands here is from before the hang. It tells how long steps took, not why the job stood.",
    );
    expect(standingWords({ is_standing_known: false, standing_since: null, windows: [row()] })).toBe(
      "Whether steps go on is not known: no node tells when its ops ended. The newest window ended at 17:00:40 UTC.",
    );
    expect(standingWords({ is_standing_known: true, standing_since: null, windows: [row()] })).toBe("");
  });

  it("says numbers as people read them", () => {
    expect([percent(0.512), percent(0.021), percent(0), ms(0.0042), ms(1.234)]).toEqual([
      "51 %",
      "2.1 %",
      "0 %",
      "4.2 ms",
      "1,234 ms",
    ]);
    expect([short("optim.step_cpu_wall"), short("data.to_device")]).toEqual(["optimizer", "data.to_device"]);
  });
});

it("says labels in words", () => {
  expect(labelWords("frontier_accounting")).toBe("Accounting of the frontier");
  expect(labelWords("some_new_label")).not.toContain("_");
});

describe("the tab", () => {
  async function shown(answers: Record<string, unknown>) {
    const fetched = (path: string) => {
      const found = Object.entries(answers).find(([end]) => String(path).endsWith(end));
      return Promise.resolve(new Response(JSON.stringify(found?.[1] ?? {}), { status: found ? 200 : 404 }));
    };
    vi.stubGlobal("fetch", vi.fn(fetched));
    await act(async () => render(<StagesPanel source="jobs/1" jobId={1} />, box));
    for (let n = 0; n < 5; n++) await act(async () => await new Promise((done) => setTimeout(done)));
    return box.textContent ?? "";
  }

  const windows = {
    recording: { is_recorded: true, gaps: 0, failed: "" },
    roles: [""],
    role: "",
    shares: FIGURE,
    led: [],
  };

  it("says that nothing is recorded, which is not the same as no window yet", async () => {
    const recording = { is_recorded: false, gaps: 0, failed: "" };
    expect(await shown({ "jobs/1/stages": { ...windows, recording, windows: [], newest_moved: null } })).toContain(
      "No recorder of stages reports from this job.",
    );
  });

  it("says how many steps came too late for a window", async () => {
    const recording = { is_recorded: true, gaps: 0, failed: "", missed: 22 };
    const text = await shown({ "jobs/1/stages": { ...windows, recording, windows: [], newest_moved: null } });
    expect(text).toContain("22 steps came too late for their windows, or never.");
  });

  it("says why there are no windows when the server could not make them", async () => {
    const recording = { is_recorded: true, gaps: 1, failed: "ValueError: bad rows" };
    const text = await shown({ "jobs/1/stages": { ...windows, recording, windows: [], newest_moved: null } });
    expect(text).toContain("The newest stretch cannot be cut into windows: ValueError: bad rows");
    expect(text).toContain("1 stretch could not be cut: its windows are missing.");
  });

  it("shows the newest window that moved, its command and why nothing stronger is said", async () => {
    const led = [{ rank: 3, windows: 4, of: 5, node: "node-1", mates: 0 }];
    const text = await shown({
      "jobs/1/stages": { ...windows, led, windows: [row({ id: 6, verdict: "usual" }), row()], newest_moved: 7 },
      "jobs/1/stages/7": one(),
    });
    expect(text).toContain(
      "rank 3 was last in 4 of 5 windows that moved; it is on node-1, whose other ranks never were",
    );
    expect(text).toContain("ssh node-1 py-spy record --pid 1003");
    expect(text).toContain("Something was missing.");
    expect(text).toContain("One rank ends this stage late.");
  });
});
