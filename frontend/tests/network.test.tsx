/* The network tab's sentence: who stands out on the wire, that nobody does, or that nothing was measured. */

import { describe, expect, it } from "vitest";
import { moved, silentWords, stretchOf, widened } from "../src/network/epochs";
import {
  countedWords,
  headline,
  type NetworkAnswer,
  type RankOnWire,
  type Unfinished,
  unfinishedWords,
  unheardWords,
} from "../src/network/shapes";

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
const ALIKE = { n_compared: 0, n_other: 0, n_unknown: 0, says: "" };
const NONE = { share: 0, n_ranks: 0, ranks: [] };
const answer = (...ranks: RankOnWire[]): NetworkAnswer => ({
  rank: 3,
  groups: [],
  group: "",
  is_custom: false,
  started_at: null,
  ended_at: null,
  unfinished: null,
  counted: { n_ops: 0, started_at: null, ended_at: null, is_before: false },
  measured: {
    n_rows: 0,
    sources: [],
    incomplete_share: 0,
    left_out: 0,
    sight: "",
    read_of: "",
    unowned: NONE,
    volumes: ALIKE,
  },
  ranks,
  times: empty,
  rates: empty,
  paths: empty,
  matrix: null,
});

describe("the sentence of the network tab", () => {
  it("names nobody while all are alike or nothing was measured", () => {
    expect(headline(answer(row(1, 1.05), row(2, 0.95)))).toBe("On the wire all ranks of this group are alike.");
    expect(headline(answer())).toContain("Nothing of this group was measured");
    expect(headline(answer(row(1, null)))).toContain("Nothing of this group was measured");
  });
  it("counts the ranks that were not measured: of them nothing is known", () => {
    const of = (...ranks: RankOnWire[]): NetworkAnswer => ({
      ...answer(...ranks),
      group: "0a",
      groups: [{ comm_id: "0a", name: "dp", n_ranks: 64 }],
    });
    expect(headline(of(row(1, 1.05), row(2, 0.95)))).toBe(
      "On the wire the 2 of 64 ranks of this group that were measured are alike.",
    );
    expect(headline(of(row(1, 1)))).toBe("Of 1 of 64 ranks bytes were measured: there is nobody to compare it with.");
    expect(headline(of(row(1, 2), row(2, 1), row(3, 1)))).toContain("the 3 of 64 ranks that were measured.");
  });
  it("calls nobody alike who is not, though nobody stands out", () => {
    expect(headline(answer(row(7, 1.249), row(3, 0.751)))).toBe(
      "On the wire no rank of this group stands out: bytes move 0.75 to 1.25 times as long as at the median rank.",
    );
  });
  it("names who stands out, the farthest first, and counts the rest", () => {
    expect(headline(answer(row(3, 2.1), row(1, 1), row(2, 0.9)))).toBe(
      "Rank 3: bytes move up to 2.1 times as long as at the median rank.",
    );
    const many = [9, 8, 7, 6, 5, 4].map((rank) => row(rank, 1.5));
    expect(headline(answer(...many, row(1, 1)))).toContain("Ranks 9, 8, 7, 6 and 2 more");
  });
  it("says when bytes moved that belong to no known op", () => {
    const unowned = { share: 1, n_ranks: 2, ranks: [] };
    expect(headline({ ...answer(), measured: { ...answer().measured, unowned } })).toContain("could not be told");
  });
});

describe("a group of a job that hangs", () => {
  const standing: NetworkAnswer = {
    ...answer(row(1, 1.1), row(2, 0.9)),
    group: "0a",
    groups: [{ comm_id: "0a", name: "world", n_ranks: 8, unfinished: 1 }],
    unfinished: {
      at: "2026-11-23T13:03:10Z",
      n_ops: 1,
      oldest: "AllReduce 169",
      entered_at: "2026-11-23T13:00:12Z",
      last_done_at: "2026-11-23T13:00:11Z",
      ranks: [0, 1, 2, 3, 4, 5, 6, 7],
      n_ranks: 8,
      n_flows: 32,
      n_read: 8,
      n_unheard: 0,
    },
    counted: { n_ops: 40, started_at: "2026-11-23T13:00:01Z", ended_at: "2026-11-23T13:00:11Z", is_before: true },
  };
  it("says first what does not end, since when and where", () => {
    expect(unfinishedWords(standing)).toBe(
      "AllReduce 169 of world has not ended: all 8 ranks stand in it, no op of the group has ended since 13:00:11 UTC, 32 flows stand still.",
    );
    const some = { ...standing.unfinished, ranks: [2, 3], n_ranks: 2, n_flows: 0, n_ops: 2 } as Unfinished;
    expect(unfinishedWords({ ...standing, unfinished: some })).toBe(
      "2 ops of world have not ended, the first of them AllReduce 169: ranks 2–3 stand in them, no op of the group has ended since 13:00:11 UTC.",
    );
    expect(unfinishedWords(answer(row(1, 1)))).toBe("");
  });
  it("says that only what ended is counted, and never that all are alike now", () => {
    expect(countedWords(standing)).toBe(
      "Times and rates below are of the 40 ops that ended from 13:00:01 to 13:00:11 UTC, all before the first symptom: none has ended since.",
    );
    expect(headline(standing)).toContain("Until then");
    expect(headline(standing)).not.toContain(" are alike");
  });
});

describe("a group of which not everybody is heard or read", () => {
  const of = (changes: Partial<Unfinished>): NetworkAnswer => ({
    ...answer(row(1, 1.1), row(2, 0.9)),
    group: "0a",
    groups: [{ comm_id: "0a", name: "world", n_ranks: 8 }],
    unfinished: {
      at: "2026-11-23T13:03:10Z",
      n_ops: 0,
      oldest: "",
      entered_at: null,
      last_done_at: "2026-11-23T13:00:11Z",
      ranks: [],
      n_ranks: 0,
      n_flows: 0,
      n_read: 8,
      n_unheard: 0,
      ...changes,
    },
  });
  it("says so though no op is known to stand and none ended", () => {
    expect(unheardWords(of({ n_unheard: 2 }))).toBe(
      "As at 13:03:10 UTC nothing is heard of 2 of the 8 ranks: what they stand in is not known.",
    );
    expect(unheardWords(of({}))).toBe("");
  });
  it("speaks of nobody in the present tense whom nobody hears", () => {
    const gone = of({ n_unheard: 8 });
    expect(unheardWords(gone)).toContain("nothing is heard of any of the 8 ranks");
    expect(headline(gone)).toContain("Until then, on the wire,");
  });
  it("says of whom it knows where not all nodes were read", () => {
    const some = of({ n_ops: 1, oldest: "AllReduce 169", ranks: [1], n_ranks: 1, n_read: 4, n_unheard: 1 });
    expect(unfinishedWords(some)).toContain("no op of the 4 ranks that were read has ended since");
    expect(unheardWords(some)).toContain("of 1 of the 4 ranks that were read:");
  });
});

describe("stretches of fetched epochs", () => {
  it("move by a share of their length and widen around their middle, never to nothing", () => {
    expect(moved([1000, 2000], 0.5)).toEqual([1500, 2500]);
    expect(moved([-2000, -1000], -0.5)).toEqual([-2500, -1500]);
    expect(widened([0, 1000], 4)).toEqual([-1500, 2500]);
    expect(widened([0, 120], 0.25)).toEqual([10, 110]);
  });
  it("are what was dragged over, in whole microseconds and at least a few epochs", () => {
    expect(stretchOf(-1.2345, 0.5)).toEqual([-1235, 500]);
    const [from, until] = stretchOf(0.001, 0.002);
    expect(until - from).toBe(100);
  });
  it("say why ranks have nothing, alike ones together", () => {
    const gone = [4, 5, 6, 7].map((rank) => ({ rank, why: "its node has not answered" }));
    expect(silentWords([...gone, { rank: 1, why: "left out" }])).toBe(
      "Nothing of ranks 4, 5, 6 and 1 more: its node has not answered. Nothing of rank 1: left out.",
    );
    expect(silentWords([])).toBe("");
  });
});
