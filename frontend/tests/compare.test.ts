import { describe, expect, it } from "vitest";
import { barRows, changeWords, coverWords, quantity, slowerWords } from "../src/incident/compare";

const row = (usual: number, now: number, unit = "ms", what = "GPU copy") => ({ what, usual, now, unit });

describe("usual against now", () => {
  it("draws all of one unit to one scale", () => {
    const bars = barRows([row(1, 4), row(2, 2), row(100, 50, "B/s")], false);
    expect(bars.map(({ usualShare, nowShare }) => [usualShare, nowShare])).toEqual([
      [0.25, 1],
      [0.5, 0.5],
      [1, 0.5],
    ]);
  });

  it("marks the part that grew most, by amount and not by factor", () => {
    const bars = barRows([row(0.01, 0.05, "ms", "proxy"), row(1, 3, "ms", "copy")], true);
    expect(bars.filter((bar) => bar.isWorst).map((bar) => bar.what)).toEqual(["copy"]);
  });

  it("marks nothing while all is about as usual", () => {
    expect(barRows([row(1, 1.1), row(2, 2)], true).some((bar) => bar.isWorst)).toBe(false);
    expect(barRows([], true)).toEqual([]);
  });

  it("survives noughts", () => {
    expect(barRows([row(0, 0)], true)[0]).toMatchObject({ usualShare: 0, nowShare: 0, change: "as usual" });
  });

  it.each([
    [1, 3.14, "3.1 ×"],
    [1, 1.05, "as usual"],
    [4, 1, "0.25 ×"],
    [0.04, 75, "1875 ×"],
    [612, 0, "none"],
    [0, 3, "usually none"],
    [-1, 2, ""],
  ])("says of %d and now %d: %s", (usual, now, words) => {
    expect(changeWords(row(usual, now))).toBe(words);
  });

  it.each([
    [0.412, "ms", "412 µs"],
    [2.31, "s", "2.3 s"],
    [17, "ms", "17 ms"],
    [340_000_000, "ns", "340 ms"],
    [2.34e10, "B/s", "23.4 GB/s"],
    [512, "bytes", "512 B"],
    [0, "s", "0 ms"],
    [4, "tasks", "4 tasks"],
    [61_471, "", "61,471"],
  ])("writes %d %s as %s", (value, unit, words) => {
    expect(quantity(value, unit)).toBe(words);
  });
});

it.each([
  [{ iteration_s: 0.412, iteration_usual_s: 0.29 }, "an iteration takes 412 ms, usually 290 ms (+42 %)"],
  [{ iteration_s: 1.2, iteration_usual_s: 0.4 }, "an iteration takes 1.2 s, usually 400 ms (3 ×)"],
  [{ iteration_s: 0.2, iteration_usual_s: 0.4 }, ""],
  [{ iteration_s: 0.2 }, ""],
  [{}, ""],
])("says by how much a slow job is slower: %o", (numbers, words) => {
  expect(slowerWords({ numbers })).toBe(words);
});

describe("how far a finding reaches", () => {
  it.each([
    [{ kind: "flow", n: 1, of: 32, whole: "rank 4" }, "1 of 32 flows of rank 4"],
    [{ kind: "rank", n: 8, of: 8, whole: "node-1" }, "all 8 ranks of node-1"],
    [{ kind: "nic", n: 1, of: 1, whole: "node-1" }, "the only NIC of node-1"],
    [{ kind: "node", n: 1280, of: 1280, whole: "" }, "all 1,280 nodes"],
  ])("says %j as %s", (step, words) => {
    expect(coverWords(step)).toBe(words);
  });
});
