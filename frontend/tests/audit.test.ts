/* The audit's address as the server is asked, and where its entries lead. */

import { describe, expect, it } from "vitest";
import { auditQuery, pageOf, restOf } from "../src/access/auditQuery";
import { absolute, aheadWords } from "../src/state/clock";

const asked = (address: string, cursors = true) =>
  Object.fromEntries(new URLSearchParams(auditQuery(new URLSearchParams(address), cursors)));

describe("the audit's address", () => {
  it("asks for nothing when it says nothing", () => {
    expect(auditQuery(new URLSearchParams())).toBe("");
    expect(auditQuery(new URLSearchParams("z=utc&colour=red&since=yesterday"))).toBe("");
  });

  it("turns days into times, the last day included, over the end of a year too", () => {
    expect(asked("since=2026-12-31&until=2026-12-31")).toEqual({
      since: "2026-12-31T00:00:00.000Z",
      until: "2027-01-01T00:00:00.000Z",
    });
  });

  it("begins at the entry a link points at, unless a page is asked for", () => {
    expect(asked("entry=41&kind=api")).toEqual({ kind: "api", before: "42" });
    expect(asked("entry=41&before=7")).toEqual({ before: "7" });
    expect(asked("entry=x")).toEqual({});
  });

  it("takes away all pages of what is shown", () => {
    expect(asked("q=incidents/12&before=7&after=3&entry=9", false)).toEqual({ q: "incidents/12" });
  });
});

describe("an entry", () => {
  it.each([
    ["incidents/12/resolve", "/incidents/12"],
    ["incidents/acts", null],
    ["jobs/7/settings", "/jobs/7/settings"],
    ["jobs/7/pause", "/jobs/7"],
    ["silences/3", "/silences"],
    ["api-tokens/3: ci, viewer of x", "/settings"],
    ["deliveries/8/replay", "/destinations"],
    ["", null],
    ["olga: viewer of research", null],
  ])("about %s leads to %s", (subject, page) => {
    expect(pageOf(subject)).toBe(page);
  });

  it("says the subject where its words do not", () => {
    expect(restOf("made the team", "made the team", "research")).toBe("research");
    expect(restOf("made an API token", "POST api-tokens", "api-tokens/3: ci, viewer of x")).toBe("ci, viewer of x");
    expect(restOf("resolved incident 12", "POST incidents/<int:number>/resolve", "incidents/12/resolve")).toBe("");
    expect(restOf("opened incident 12", "opened incident 12", "incidents/12")).toBe("");
  });
});

describe("time that is left", () => {
  it("is told in days when there are several", () => {
    expect([aheadWords(-5), aheadWords(90 * 60_000), aheadWords(30 * 86_400_000)]).toEqual(["0 ms", "1.5 h", "30 d"]);
  });

  it("names the year of a moment in another one", () => {
    expect(absolute("2020-03-01T10:00:00Z")).toContain("2020");
    expect(absolute(Date.now())).not.toContain(String(new Date().getUTCFullYear()));
  });
});
