/* What the form of a silence offers to choose from. */

import { describe, expect, it } from "vitest";
import type { Facets } from "../src/api";
import { knownValues, valuesOf } from "../src/silences/matchers";

const facets = { job: { "llama-10": 1, "llama-2": 3 }, rack: { unknown: 4, r2: 1 }, cluster: {} } as unknown as Facets;

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
