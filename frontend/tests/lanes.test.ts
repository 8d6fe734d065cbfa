import { describe, expect, it } from "vitest";
import { scaleFor } from "../src/grid/paint";
import { affectedNames } from "../src/lanes/affected";
import { endWords, isKnownAt, laterMs } from "../src/lanes/ends";
import { firstOf, laneGroups, tellingFirst } from "../src/lanes/order";
import { laneTops } from "../src/lanes/paint";
import {
  conditionAt,
  conditionWords,
  freshTickAt,
  laneColumns,
  momentsOf,
  notKeptUntil,
  onOneClock,
  opStarts,
  rulerTicks,
  shownRange,
  tellingTickAt,
  tickAt,
} from "../src/lanes/scale";
import { makeCondition, makeDiagnosis, makeFinding, makeLane, makeLanes, SECOND } from "./fixtures";

describe("columns of a lane", () => {
  it("show the least progress and the stall when ticks share a pixel", () => {
    const [column] = laneColumns(makeLane(), 0, 10 * SECOND, 1);
    expect(column).toMatchObject({ done: 8 / 32, stalled: true });
  });

  it("never lie outside the width", () => {
    for (const { x, width } of laneColumns(makeLane(), 2 * SECOND, 6 * SECOND, 400)) {
      expect(x).toBeGreaterThanOrEqual(0);
      expect(x + width).toBeLessThanOrEqual(402);
    }
  });

  it("leave blank where nothing was in progress or nothing was seen", () => {
    const lane = makeLane({ t_ns: [0, 9 * SECOND], stuck_ms: [0, 0] });
    const columns = laneColumns(lane, 0, 10 * SECOND, 1000);
    expect(columns[0].x + columns[0].width).toBeLessThan(30);
    expect(columns[1].x).toBe(900);
  });

  it("are empty for a flow without ticks", () => {
    expect(laneColumns(makeLane({ t_ns: [] }), 0, SECOND, 100)).toEqual([]);
  });
});

describe("reading a lane", () => {
  const last = 99;

  it("reads the newest tick at or before the crosshair", () => {
    const lane = makeLane();
    expect(tickAt(lane, -1)).toBe(-1);
    expect(tickAt(lane, 0.15 * SECOND)).toBe(1);
    expect(tickAt(lane, 99 * SECOND)).toBe(last);
  });

  it("does not take an old tick for news: no op was in progress since", () => {
    const lane = makeLane({ t_ns: makeLane().t_ns.slice(0, 50) });
    expect(freshTickAt(lane, 5.5 * SECOND)).toBe(49);
    expect(conditionWords(lane, freshTickAt(lane, 9 * SECOND))).toBe("No op in progress on this flow");
  });

  it("makes room for the trigger's mark when its look came just after the window", () => {
    const lanes = { ...makeLanes(), triggered_ns: 11 * SECOND };
    expect(shownRange(lanes).to_ns).toBeGreaterThan(11 * SECOND);
    expect(shownRange(makeLanes()).to_ns).toBe(10 * SECOND);
  });

  it("reads the op that is stuck longest where several are in progress", () => {
    const t_ns = [9.9, 9.9, 9.9].map((at) => at * SECOND);
    const three = { ready: [32, 14, 0], transmitted: [32, 14, 0], done: [32, 8, 0], posted: [32, 14, 0] };
    const lane = makeLane({ ...three, t_ns, ops: [11, 12, 13], stuck_ms: [9000, 7000, 100] });
    expect(lane.ops[tellingTickAt(lane, 10 * SECOND)]).toBe(12);
  });

  it("marks where another op began, once where rows of several ops alternate", () => {
    expect(opStarts(makeLane())).toEqual([50]);
    expect(opStarts(makeLane({ ops: [11, 12, 11, 12, 13] }))).toEqual([1, 4]);
  });

  it.each([
    [[0, 0, 0, 0], "not_started"],
    [[14, 14, 9, 9], "not_transmitted"],
    [[14, 14, 14, 8], "not_delivered"],
    [[9, 9, 9, 9], "gpu_not_ready"],
    [[32, 32, 32, 32], ""],
  ])("tells the condition of counters %j", ([posted, ready, transmitted, done], condition) => {
    const at = (value: number) => Array(100).fill(value);
    const lane = makeLane({ posted: at(posted), ready: at(ready), transmitted: at(transmitted), done: at(done) });
    expect(conditionAt(lane, last)).toBe(condition);
  });

  it("words a receive from the receiver's side", () => {
    const at = (value: number) => Array(100).fill(value);
    const counters = { ready: at(8), transmitted: at(8), done: at(8) };
    expect(conditionWords(makeLane({ ...counters, direction: "recv" }), last)).toBe("Next chunk not yet received");
    expect(conditionWords(makeLane({ ...counters, direction: "send" }), last)).toBe(
      "GPU not ready with the next chunk",
    );
  });
});

describe("the ruler", () => {
  it("has round steps that fit", () => {
    const { stepS, at } = rulerTicks(0, 60 * SECOND, 900);
    expect(stepS).toBe(10);
    expect(at).toHaveLength(7);
  });
});

describe("the order of lanes", () => {
  const moving = { stuck_ms: makeLane().stuck_ms.map(() => 0) };
  const lanes = makeLanes([
    makeLane({ id: "idle", t_ns: makeLane().t_ns.slice(0, 10) }),
    makeLane({ id: "moving", ...moving }),
    makeLane({ id: "victim", rank: 0, peer_rank: 2 }),
    makeLane({ id: "other", channel: 1 }),
    makeLane({ id: "cited by evidence", rank: 5, peer_rank: 4, direction: "receive" }),
    makeLane({ id: "cited by a condition", peer_rank: 5, channel: 3 }),
  ]);
  const finding = makeFinding({
    evidence: [{ what: "dp-0 op 12 channel 0, rank 4 to 5: a | b", value: "", unit: "", source: "flow", rank: 4 }],
    conditions: [makeCondition({ peer_rank: 5, channel: 3 })],
  });

  const verdict = { culprits: [4], victims: [0, 5], finding, affected: [] };

  it("is: cited by the verdict, stuck at culprits, stuck elsewhere, moving, idle", () => {
    const ids = tellingFirst(lanes, verdict).map((lane) => lane.id);
    expect(ids).toEqual(["cited by a condition", "cited by evidence", "other", "victim", "moving", "idle"]);
  });

  it("puts those with a culprit at the other end before others that are alike", () => {
    const moves = (id: string, rank: number, peer_rank: number) =>
      makeLane({ id, rank, peer_rank, stuck_ms: makeLane().stuck_ms.map(() => 0) });
    const slow = makeLanes([moves("far", 1, 2), moves("at the culprit", 6, 7)]);
    const blamed = { culprits: [7], victims: [1, 6], finding: null, affected: [] };
    expect(tellingFirst(slow, blamed).map((lane) => lane.id)).toEqual(["at the culprit", "far"]);
    expect(endWords(slow)).toContain("None of them stands still");
    expect(endWords(makeLanes())).not.toContain("None of them");
  });

  it("does not depend on the order in which they came", () => {
    const turned = { ...lanes, lanes: lanes.lanes.toReversed() };
    expect(tellingFirst(turned, verdict)).toEqual(tellingFirst(lanes, verdict));
  });

  it("puts culprits before those who only wait, and others last", () => {
    const more = makeLanes([...lanes.lanes, makeLane({ id: "bystander", rank: 9, peer_rank: 10 })]);
    expect(laneGroups(more, verdict).map(({ role, lanes }) => [role, lanes[0].id, lanes.length])).toEqual([
      ["culprit", "cited by a condition", 4],
      ["victim", "cited by evidence", 2],
      ["other", "bystander", 1],
    ]);
  });

  it("puts communicators the waiting does not go through behind those it does", () => {
    const two = makeLanes([makeLane({ id: "a" }), makeLane({ id: "b", comm_name: "tp-1" })]);
    const affected = { culprits: [4], victims: [], finding: null, affected: ["tp-1"] };
    expect(tellingFirst(two, affected).map((lane) => lane.id)).toEqual(["b", "a"]);
  });

  it("never lets one group's lanes crowd out the next", () => {
    const many = (rank: number) => Array.from({ length: 20 }, (_, channel) => makeLane({ rank, channel }));
    const groups = laneGroups(makeLanes([...many(4), ...many(0)]), verdict);
    expect(firstOf(groups, 12).map(({ lanes }) => lanes.length)).toEqual([6, 6]);
    expect(
      firstOf([groups[0], { role: "victim", lanes: many(0).slice(0, 2) }], 12).map(({ lanes }) => lanes.length),
    ).toEqual([10, 2]);
  });

  it("leaves room for a heading above each group, and for none where there is one", () => {
    const groups = laneGroups(lanes, verdict);
    const { tops, height } = laneTops(groups);
    expect(tops).toHaveLength(6);
    expect(tops[4] - tops[3]).toBeGreaterThan(tops[1] - tops[0]);
    expect(height).toBeGreaterThan(tops[5]);
    expect(laneTops(groups.slice(0, 1)).tops[0]).toBe(0);
  });
});

describe("the time axis", () => {
  const nodeOf = (rank: number) => (rank === 4 ? "node-1" : "node-2");

  it("puts lanes of a node whose clock is ahead back by that much, and leaves the others", () => {
    const lanes = makeLanes([makeLane(), makeLane({ id: "other", rank: 6 })]);
    const clocks = [
      { node: "node-1", offset_ns: 0.3 * SECOND, error_ns: 1e6 },
      { node: "node-2", offset_ns: 2e6, error_ns: 5e6 },
    ];
    const [mine, other] = onOneClock(lanes, clocks, nodeOf).lanes;
    expect(mine.t_ns[10]).toBeCloseTo(0.7 * SECOND, -2);
    expect(other).toBe(lanes.lanes[1]);
  });

  it("marks when the fault began, was first seen and noticed, as far as that is known and shown", () => {
    expect(momentsOf(makeLanes(), 4.6 * SECOND).map(({ word }) => word)).toEqual([
      "fault began",
      "first symptom",
      "triggered",
    ]);
    expect(momentsOf(makeLanes(), 5.4 * SECOND)[0].word).toBe("seen at culprit");
    expect(momentsOf(makeLanes(), 0).map(({ kind }) => kind)).toEqual(["first", "trigger"]);
    expect(momentsOf({ ...makeLanes(), from_ns: 6 * SECOND }, 4.6 * SECOND).map(({ kind }) => kind)).toEqual([
      "trigger",
    ]);
  });

  it("is of the communicators the path goes through, else of the one the symptom speaks of", () => {
    const diagnosis = makeDiagnosis({ communicators: { 77: "dp_0", 78: "tp_2" } });
    expect(affectedNames({ ...diagnosis, path: [{ waiter: 6, waits_for: 4, comm_id: "78", op: 1, why: "" }] })).toEqual(
      ["tp_2"],
    );
    expect(affectedNames({ ...diagnosis, path: [], symptom: { ...diagnosis.symptom, comm_id: 77 } })).toEqual(["dp_0"]);
  });
});

describe("history that was not kept", () => {
  it("is marked before the first tick of all flows", () => {
    const late = makeLane({ t_ns: makeLane().t_ns.map((ns) => ns + 4 * SECOND) });
    expect(notKeptUntil(makeLanes([late]), late)).toBe(4 * SECOND);
    expect(notKeptUntil(makeLanes([late, makeLane()]), late)).toBeNull();
  });
});

describe("where lanes end", () => {
  it("is said, and why: no more is drawn, or no more is known", () => {
    const cut = { ...makeLanes(), newest_ns: 250 * SECOND };
    expect(laterMs(cut)).toBe(240_000);
    expect(endWords(cut)).toContain("10 s are drawn, what is known goes on for 4 min.");
    expect(endWords(makeLanes())).toMatch(/^Ends at [\d:]+ UTC: nothing newer is known\.$/);
  });

  it("is where knowledge ends, though the axis goes on to the trigger's mark", () => {
    const lanes = shownRange({ ...makeLanes(), triggered_ns: 12 * SECOND });
    expect(lanes.to_ns).toBeGreaterThan(lanes.newest_ns);
    expect([isKnownAt(lanes, lanes.newest_ns), isKnownAt(lanes, lanes.to_ns)]).toEqual([true, false]);
  });

  it("is told from flows that ended earlier", () => {
    const lanes = makeLanes([makeLane({ t_ns: makeLane().t_ns.slice(0, 50) })]);
    expect(endWords(lanes)).toContain("none of these flows was in progress");
    expect(endWords(makeLanes([]))).not.toContain("none of these");
  });
});

it("draws a thousand lanes coarser rather than not at all", () => {
  expect(scaleFor(800, 600)).toBe(devicePixelRatio || 1);
  for (const [width, height] of [
    [800, 47_104],
    [4000, 9000],
  ]) {
    const scale = scaleFor(width, height);
    expect(height * scale).toBeLessThanOrEqual(32_000);
    expect(width * height * scale * scale).toBeLessThanOrEqual(16_000_001);
  }
});
