import { describe, expect, it } from "vitest";
import { readEdits } from "../src/pages/settingEdits";
import type { Setting } from "../src/types";

const setting = (changes: Partial<Setting> = {}): Setting => ({
  name: "delta_max_s",
  group: "failure",
  unit: "s",
  about: "",
  value: 20,
  default: 10,
  low: 1,
  high: 600,
  whole: false,
  overridden: true,
  changed_at: null,
  changed_by: null,
  reason: null,
  ...changes,
});

describe("what was typed into settings", () => {
  it("is a change in words and in numbers", () => {
    expect(readEdits([setting()], { delta_max_s: "30" })).toEqual({
      changes: { delta_max_s: 30 },
      words: ["delta_max_s: 20 s → 30 s"],
      problems: [],
    });
  });

  it("goes back to the default, which is no number of its own", () => {
    expect(readEdits([setting()], { delta_max_s: null }).changes).toEqual({ delta_max_s: null });
    expect(readEdits([setting({ value: 10, overridden: false })], { delta_max_s: null }).changes).toEqual({});
  });

  it("is nothing when it is what it was", () => {
    expect(readEdits([setting()], { delta_max_s: "20" })).toEqual({ changes: {}, words: [], problems: [] });
    expect(readEdits([setting()], {}).words).toEqual([]);
  });

  it.each([
    ["", "delta_max_s needs a number."],
    ["many", "delta_max_s needs a number."],
    ["0", "delta_max_s must be 1 to 600 s."],
    ["601", "delta_max_s must be 1 to 600 s."],
  ])("is refused as %j, in a sentence", (text, problem) => {
    expect(readEdits([setting()], { delta_max_s: text })).toEqual({ changes: {}, words: [], problems: [problem] });
  });

  it("must be whole where only whole numbers count", () => {
    const ranks = setting({ name: "sampled_ranks_max", unit: "ranks", whole: true, low: 1, high: 100 });
    expect(readEdits([ranks], { sampled_ranks_max: "2.5" }).problems).toEqual([
      "sampled_ranks_max must be a whole number.",
    ]);
  });
});
