import { describe, expect, it } from "vitest";
import { backoffMs, phaseAfter, STALE_MS } from "../src/live/socket";
import { foldLooks } from "../src/parts/LooksTable";
import { isPage } from "../src/state/address";
import { iconSvg } from "../src/state/badge";
import { absolute, ageWords, setZone, spanWords } from "../src/state/clock";
import { numberWords, rankRanges } from "../src/state/words";

describe("words", () => {
  it.each([
    [500, "now"],
    [43_000, "43 s ago"],
    [720_000, "12 min ago"],
    [3 * 3_600_000, "3 h ago"],
    [5 * 86_400_000, "5 d ago"],
    [-4000, "now"],
  ])("says %i ms as %s", (ms, words) => {
    expect(ageWords(ms)).toBe(words);
  });

  it.each([
    [840, "840 ms"],
    [2400, "2.4 s"],
    [43_000, "43 s"],
    [720_000, "12 min"],
  ])("says a span of %i ms as %s", (ms, words) => {
    expect(spanWords(ms)).toBe(words);
  });

  it("labels absolute times with their zone", () => {
    setZone("utc");
    expect(absolute("2026-11-21T13:02:11.240Z")).toBe("21 Nov 13:02:11.240 UTC");
  });

  it("folds ranks into ranges and says how many it left out", () => {
    expect(rankRanges([5, 0, 1, 2, 3, 8, 9])).toBe("0–3, 5, 8–9");
    expect(rankRanges([0, 2, 4, 6, 8], 2)).toBe("0, 2 and 3 more");
    expect(rankRanges([])).toBe("");
  });

  it.each([
    ["delta_s", 2, "Δ 2 s"],
    ["delta_max_s", 10, "delta max 10 s"],
    ["findings_max", 5, "findings at most 5"],
    ["io_bytes_per_s", 1e6, "io bytes 1,000,000/s"],
    ["group_s", 1e-5, "group 0.00001 s"],
    ["sampled_ranks", 3, "sampled ranks 3"],
  ])("words %s = %d as %s", (name, value, words) => {
    expect(numberWords(name, value).join(" ")).toBe(words);
  });

  it("folds looks in a row that saw the same, whatever the numbers", () => {
    const look = (kind: string, saw: string, at: string) => ({ at, kind, saw, thresholds: {} });
    const runs = foldLooks([
      look("failure", "None completed for 3.8 s.", "5"),
      look("failure", "None completed for 2.8 s.", "4"),
      look("", "Nothing wrong on 8 watched ranks.", "3"),
      look("", "Too young to judge.", "2"),
      look("failure", "None completed for 9 s.", "1"),
    ]);
    expect(runs.map(({ newest, n, oldestAt }) => [newest.at, n, oldestAt])).toEqual([
      ["5", 2, "4"],
      ["3", 1, "3"],
      ["2", 1, "2"],
      ["1", 1, "1"],
    ]);
  });
});

describe("the live mark", () => {
  it("is stale after three seconds of silence, though the socket says it is open", () => {
    expect(phaseAfter(true, STALE_MS)).toBe("live");
    expect(phaseAfter(true, STALE_MS + 1)).toBe("stale");
  });

  it("says reconnecting right after a drop, stale later, connecting before the first frame", () => {
    expect(phaseAfter(false, 200)).toBe("reconnecting");
    expect(phaseAfter(false, 43_000)).toBe("stale");
    expect(phaseAfter(false, null)).toBe("connecting");
  });

  it("backs off with jitter, and not for ever longer", () => {
    expect(backoffMs(0, 0)).toBe(250);
    expect(backoffMs(0, 1)).toBe(500);
    expect(backoffMs(99, 1)).toBe(5_000);
  });
});

describe("the tab", () => {
  it("shows the count on the icon, and nothing when there is none", () => {
    expect(iconSvg(0)).not.toContain("<text");
    expect(iconSvg(3)).toContain(">3</text>");
    expect(iconSvg(40)).toContain(">9+</text>");
  });

  it("knows its own pages from the server's", () => {
    for (const page of ["/", "/incidents", "/incidents/12", "/jobs/3", "/nodes", "/settings"])
      expect(isPage(page)).toBe(true);
    for (const other of ["/signin", "/api/v1/docs", "/incidents/x"]) expect(isPage(other)).toBe(false);
  });
});
