/* The network tab's sentence: who stands out on the wire, that nobody does, or that nothing was measured. */

import { describe, expect, it } from "vitest";
import { headline, type NetworkAnswer, type RankOnWire } from "../src/network/shapes";

const row = (rank: number, times: number | null): RankOnWire => ({
  rank,
  n_ops: 10,
  actual_ms: 10 * (times ?? 0),
  lasted_ms: 30,
  gb_per_s: times === null ? null : 1 / times,
  times_median: times,
  unfinished: 0,
});
const empty = { data: [], layout: {}, config: {}, text: "" };
const answer = (...ranks: RankOnWire[]): NetworkAnswer => ({
  rank: 3,
  groups: [],
  group: "",
  is_custom: false,
  started_at: null,
  ended_at: null,
  measured: { n_rows: 0, sources: [], incomplete_share: 0, left_out: 0, sight: "", read_of: "" },
  ranks,
  times: empty,
  rates: empty,
  paths: empty,
  matrix: null,
});

describe("the sentence of the network tab", () => {
  it("names nobody while all are alike or nothing was measured", () => {
    expect(headline(answer(row(1, 1.1), row(2, 0.9)))).toBe("On the wire all ranks of this group are alike.");
    expect(headline(answer())).toContain("Nothing of this group was measured");
    expect(headline(answer(row(1, null)))).toContain("Nothing of this group was measured");
  });
  it("counts the ranks that were not measured: of them nothing is known", () => {
    const of = (...ranks: RankOnWire[]): NetworkAnswer => ({
      ...answer(...ranks),
      group: "0a",
      groups: [{ comm_id: "0a", name: "dp", n_ranks: 64 }],
    });
    expect(headline(of(row(1, 1.1), row(2, 0.9)))).toBe(
      "On the wire the 2 of 64 ranks of this group that were measured are alike.",
    );
    expect(headline(of(row(1, 1)))).toBe("Of 1 of 64 ranks bytes were measured: there is nobody to compare it with.");
    expect(headline(of(row(1, 2), row(2, 1), row(3, 1)))).toContain("the 3 of 64 ranks that were measured.");
  });
  it("names who stands out, the farthest first, and counts the rest", () => {
    expect(headline(answer(row(3, 2.1), row(1, 1), row(2, 0.9)))).toBe(
      "Rank 3: bytes move up to 2.1 times as long as at the median rank.",
    );
    const many = [9, 8, 7, 6, 5, 4].map((rank) => row(rank, 1.5));
    expect(headline(answer(...many, row(1, 1)))).toContain("Ranks 9, 8, 7, 6 and 2 more");
  });
});
