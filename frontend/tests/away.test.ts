/* What the page says while the server does not answer: who, since when, and never that it is current. */

import { describe, expect, it } from "vitest";
import { ApiError } from "../src/api";
import { awayWords } from "../src/state/away";

const ANSWERED = Date.parse("2026-11-21T18:09:56Z");
const databaseAway = new ApiError(503, "database_away", "The database does not answer.", {});

describe("a server that does not answer", () => {
  it("is no matter while answers come", () => {
    expect(awayWords(null, ANSWERED, null, ANSWERED + 4000)).toBeNull();
    expect(awayWords(null, ANSWERED, ANSWERED + 5000, ANSWERED + 6000)).toBeNull();
  });

  it.each([
    [databaseAway, "The database does not answer since 18:09:56 UTC."],
    [new TypeError("Failed to fetch"), "The server does not answer since 18:09:56 UTC."],
    [new ApiError(502, "", "", {}), "The server does not answer as it should since 18:09:56 UTC."],
    [new ApiError(403, "forbidden", "", {}), "The server refuses to answer since 18:09:56 UTC."],
  ])("is named, with the time of what is shown (%#)", (failure, words) => {
    expect(awayWords(failure, ANSWERED, null, ANSWERED + 60_000)).toBe(words);
  });

  it("is noticed although it keeps the question", () => {
    expect(awayWords(null, ANSWERED, ANSWERED + 5000, ANSWERED + 10_500)).toMatch(/^The server does not answer since/);
  });

  it("is left to the page that has nothing to show", () => {
    expect(awayWords(databaseAway, null, null, ANSWERED)).toBeNull();
  });
});
