import { describe, expect, it } from "vitest";
import { tellingFirst } from "../src/lanes/order";
import {
  conditionAt,
  conditionWords,
  freshTickAt,
  laneColumns,
  notKeptUntil,
  opStarts,
  rulerTicks,
  shownRange,
  tellingTickAt,
  tickAt,
} from "../src/lanes/scale";
import { makeCondition, makeFinding, makeLane, makeLanes, SECOND } from "./fixtures";

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
    expect(conditionWords(makeLane({ ...counters, direction: "recv" }), last)).toBe(
      "Waits for the sender's next chunk",
    );
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

  it("is: cited by the verdict, stuck at culprits, stuck elsewhere, moving, idle", () => {
    const ids = tellingFirst(lanes, [4], finding).map((lane) => lane.id);
    expect(ids).toEqual(["cited by a condition", "cited by evidence", "other", "victim", "moving", "idle"]);
  });

  it("does not depend on the order in which they came", () => {
    const turned = { ...lanes, lanes: lanes.lanes.toReversed() };
    expect(tellingFirst(turned, [4], finding)).toEqual(tellingFirst(lanes, [4], finding));
  });
});

describe("history that was not kept", () => {
  it("is marked before the first tick of all flows", () => {
    const late = makeLane({ t_ns: makeLane().t_ns.map((ns) => ns + 4 * SECOND) });
    expect(notKeptUntil(makeLanes([late]), late)).toBe(4 * SECOND);
    expect(notKeptUntil(makeLanes([late, makeLane()]), late)).toBeNull();
  });
});
