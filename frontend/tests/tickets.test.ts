import { describe, expect, it } from "vitest";
import { ApiError } from "../src/api";
import { type DestinationRow, overtakenBy, standing } from "../src/tickets/calls";

const ROW: DestinationRow = {
  id: 1,
  version: 3,
  team: "t",
  name: "duty",
  kind: "pagerduty",
  title: "PagerDuty",
  settings: {},
  has_secrets: true,
  severity_min: "low",
  title_template: "",
  body_template: "",
  enabled: true,
  paused_why: "",
  not_sent_why: "",
  not_before: null,
  n_failures: 0,
  n_waiting: 0,
  n_sent: 0,
  n_dead: 0,
  n_refused: 0,
  n_left_out: 0,
  hook_path: "",
  n_hooks: 0,
  hooks_refused: {},
  may_change: true,
};

describe("how a destination does", () => {
  it("is not in order before anything has arrived", () => {
    expect(standing(ROW)).toEqual({ word: "nothing sent yet", isBad: false });
    expect(standing({ ...ROW, n_dead: 2 })).toEqual({ word: "nothing has arrived", isBad: true });
    expect(standing({ ...ROW, n_sent: 1 })).toEqual({ word: "in order", isBad: false });
  });
  it("says that it fails, or is off and why", () => {
    expect(standing({ ...ROW, n_sent: 9, n_failures: 3 }).isBad).toBe(true);
    expect(standing({ ...ROW, enabled: false, paused_why: "answered 410" }).word).toBe("switched off: answered 410");
  });
});

describe("what somebody changed meanwhile", () => {
  it("is told by who and what, with the version to go on from", () => {
    const changes = [
      { at: "", actor: "rita", actor_kind: "user", act: "changed", changed: ["severity_min"] },
      { at: "", actor: "ada", actor_kind: "user", act: "changed", changed: ["name", "severity_min"] },
    ];
    const answer = { destination: { ...ROW, version: 9 }, changes };
    expect(overtakenBy(new ApiError(409, "stale_version", "x", answer))).toEqual({
      words: "rita changed it meanwhile (severity min, name).",
      version: 9,
    });
    expect(overtakenBy(new ApiError(412, "stale_version", "x", answer))?.version).toBe(9);
  });
  it("is nothing of another refusal", () => {
    expect(overtakenBy(new ApiError(400, "bad_act", "x", {}))).toBeNull();
    expect(overtakenBy(new ApiError(409, "illegal_move", "x", {}))).toBeNull();
    expect(overtakenBy(new Error("x"))).toBeNull();
  });
});
