/* What the form of a silence offers to choose from. */

import { describe, expect, it } from "vitest";
import type { Facets } from "../src/api";
import { beginsAt } from "../src/silences/durations";
import { knownValues, valuesOf } from "../src/silences/matchers";

const facets = { job: { "llama-10": 1, "llama-2": 3 }, rack: { unknown: 4, r2: 1 }, cluster: {} } as unknown as Facets;

describe("when a silence begins", () => {
  it("is the time typed, in the zone that pages show, and now while nothing is typed", () => {
    expect(beginsAt("", true)).toBeNull();
    expect(beginsAt("2026-12-01T08:30", true)).toBe("2026-12-01T08:30:00.000Z");
    expect(beginsAt("2026-12-01T08:30", false)).toBe(new Date(2026, 11, 1, 8, 30).toISOString());
    expect(beginsAt("soon", true)).toBeNull();
  });
});

describe("the values offered for a matcher", () => {
  it("are what incidents and jobs name, in the order people sort, and never unknown", () => {
    expect(knownValues("job", facets, ["mistral", "llama-2"]).map(([value]) => value)).toEqual([
      "llama-2",
      "llama-10",
      "mistral",
    ]);
    expect(knownValues("rack", facets, ["mistral"])).toEqual([["r2", "r2"]]);
    expect(knownValues("cluster", null, [])).toEqual([]);
  });

  it("say what a code means", () => {
    expect(knownValues("symptom", null, [])).toContainEqual(["failure", "Hang"]);
    expect(knownValues("component", null, []).map(([value]) => value)).not.toContain("unknown");
  });

  it("are several where they are typed with commas", () => {
    expect(valuesOf(" r1n3, ,r2* ,")).toEqual(["r1n3", "r2*"]);
  });
});
