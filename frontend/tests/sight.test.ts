import { describe, expect, it } from "vitest";
import { neighbour } from "../src/state/selection";
import { blindWords, showsCondition, stateNow, wellness } from "../src/state/sight";
import { AT, makeIncident, makeJob } from "./fixtures";

const now = Date.parse(AT);
const earlier = (seconds: number) => new Date(now - seconds * 1000).toISOString();

describe("what is said of an incident nobody can see", () => {
  it("is nothing while data and looks are fresh", () => {
    expect(blindWords(makeIncident(), makeJob({ state: "stuck" }), now)).toBeNull();
  });

  it.each([
    [makeJob({ state: "stuck", last_data_at: earlier(363) }), "no data for 6 min; last seen happening 14:59:37"],
    [makeJob({ state: "silent", last_data_at: earlier(12) }), "no data for 12 s; last seen happening 15:05:28"],
    [makeJob({ state: "stuck", looked_at: earlier(120) }), "no look for 2 min; last seen happening 15:03:40"],
    [makeJob({ state: "unknown", looked_at: earlier(37) }), "no look for 37 s; last seen happening 15:05:03"],
    [makeJob({ state: "unknown", last_data_at: earlier(2) }), "the newest look failed; last seen happening 15:05:38"],
    [makeJob({ state: "ended" }), "the job ended; last seen happening 15:05:40"],
    [makeJob({ attempt: 2 }), "attempt 1 is over"],
    [makeJob({ last_data_at: null }), "no data; last seen happening 15:05:40"],
  ])("tells why, and when it was last seen (%#)", (job, words) => {
    expect(blindWords(makeIncident(), job, now)).toBe(words);
  });

  it("is nothing for a silence that looks still see: missing data is what it is about", () => {
    const job = makeJob({ state: "silent", last_data_at: earlier(300) });
    expect(blindWords(makeIncident({ symptom: "silence" }), job, now)).toBeNull();
  });

  it("keeps the condition beside Resolved as long as it fires", () => {
    expect(showsCondition(makeIncident({ state: "resolved" }))).toBe(true);
    expect(showsCondition(makeIncident({ state: "resolved", condition: "clear" }))).toBe(false);
  });
});

describe("the state of a job", () => {
  it.each(["running", "stuck", "slow", "idle", "catching_up"] as const)("is %s as long as somebody looks", (state) => {
    expect(stateNow(makeJob({ state, looked_at: earlier(29) }), now)).toEqual({ state, why: "" });
  });

  it.each(["running", "stuck", "idle", "unknown"] as const)(
    "is unknown, not %s, when nobody looks any more",
    (state) => {
      const job = makeJob({ state, looked_at: earlier(57) });
      expect(stateNow(job, now)).toEqual({
        state: "unknown",
        why: "not looked at for 57 s: does the worker of looks run?",
      });
    },
  );

  it.each([
    [makeJob({ state: "unknown", nodes_reporting: 0, last_data_at: earlier(12) }), "not heard for 12 s: see Ingest"],
    [makeJob({ state: "unknown", nodes_reporting: 0, last_data_at: null }), ""],
    [makeJob({ state: "unknown" }), "the newest look failed"],
    [makeJob({ state: "unknown", looked_at: null }), "not looked at yet: does the worker of looks run?"],
  ])("says why it is unknown (%#)", (job, why) => {
    expect(stateNow(job, now)).toEqual({ state: "unknown", why });
  });

  it.each(["silent", "ended"] as const)("stays %s, which needs no look", (state) => {
    expect(stateNow(makeJob({ state, looked_at: earlier(300) }), now).state).toBe(state);
  });
});

describe("all is well", () => {
  it("while every job runs and was looked at lately", () => {
    const jobs = [makeJob(), makeJob({ id: 2, state: "idle", looked_at: earlier(20) })];
    expect(wellness(jobs, now)).toMatchObject({ isWell: true, lookedAt: earlier(20) });
  });

  it.each(["stuck", "slow", "unknown", "silent", "catching_up"] as const)("not while a job is %s", (state) => {
    expect(wellness([makeJob(), makeJob({ id: 2, state })], now).isWell).toBe(false);
  });

  it("not while one job's newest look is old, however fresh the others'", () => {
    expect(wellness([makeJob(), makeJob({ id: 2, looked_at: earlier(31) })], now).isWell).toBe(false);
    expect(wellness([makeJob(), makeJob({ id: 2, looked_at: null })], now)).toMatchObject({ lookedAt: null });
  });

  it("not when nothing runs: nobody looks", () => {
    expect(wellness([makeJob({ state: "ended" })], now).isWell).toBe(false);
  });
});

describe("the selected row", () => {
  const rows = [3, 2, 1].map((number) => makeIncident({ number }));

  it("is the first one after the first key, then the next, and stays within the list", () => {
    expect(neighbour(rows, null, 1)).toBe(3);
    expect(neighbour(rows, 3, 1)).toBe(2);
    expect(neighbour(rows, 1, 1)).toBe(1);
    expect(neighbour([], null, 1)).toBeNull();
  });
});
