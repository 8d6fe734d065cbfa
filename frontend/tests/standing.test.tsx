/* Who stood still when: rows in order, words of spans, and the picture itself. */

import axe from "axe-core";
import { type ComponentChildren, render } from "preact";
import { act } from "preact/test-utils";
import { afterEach, describe, expect, it } from "vitest";
import { StandingPicture } from "../src/lanes/StandingPicture";
import {
  doingWords,
  flowWords,
  isStanding,
  shortWords,
  sideWords,
  spanAt,
  standingGroups,
} from "../src/lanes/standing";
import { setQuery } from "../src/state/address";
import { rolesOf } from "../src/state/roles";
import type { Span, Standing } from "../src/types";
import { makeDiagnosis, makeLanes, SECOND } from "./fixtures";

const moved = (rank: number, until: number): Span => ({
  ...{ rank, from_ns: 0, to_ns: until * SECOND, doing: "moves", verdict: "", comm_id: "", comm_name: "", op: 0 },
  ...{ peer_rank: -1, channel: -1, direction: "", counters: [], total_chunks: 0 },
});
const stood = (rank: number, since: number, changes: Partial<Span> = {}): Span => ({
  ...moved(rank, 10),
  ...{ from_ns: since * SECOND, doing: "not_transmitted", verdict: "local", comm_id: "00ab", comm_name: "world" },
  ...{ op: 171, peer_rank: 3, channel: 0, direction: "send", counters: [8, 5, 4, 4], total_chunks: 16 },
  ...changes,
});
const standing = (n = 3): Standing => ({
  ...{ from_ns: 0, to_ns: 10 * SECOND, step_ns: SECOND / 2, omitted: 0 },
  ranks: Array.from({ length: n }, (_, rank) => rank),
  spans: Array.from({ length: n }, (_, rank) => [moved(rank, 5), stood(rank, 5)]).flat(),
});

describe("rows", () => {
  it("stand in the order of roles: who started it, who only waits, others", () => {
    const groups = standingGroups(standing(), rolesOf([2], [], [0]), 16);
    expect(groups.map(({ role, rows }) => [role, rows.map(({ rank }) => rank)])).toEqual([
      ["culprit", [2]],
      ["victim", [0]],
      ["other", [1]],
    ]);
    expect(groups[0].rows[0].spans.map(({ doing }) => doing)).toEqual(["moves", "not_transmitted"]);
  });

  it("of a tie stand together, before those who only wait, each with the side its counters tell", () => {
    const sided = { ...standing(), spans: [stood(1, 5), stood(2, 5, { verdict: "remote" })] };
    const [{ role, rows }, ...rest] = standingGroups(sided, rolesOf([], [1, 2], [0]), 16);
    expect([role, rows.map(({ rank }) => rank), rest.map((one) => one.role)]).toEqual(["suspect", [1, 2], ["victim"]]);
    expect(rows.flatMap(({ spans }) => spans.map((span) => span.verdict))).toEqual(["local", "remote"]);
  });

  it("do not say of who only waits that the fault is on its own side", () => {
    const [, { rows }] = standingGroups(standing(), rolesOf([2], [], [0]), 16);
    const last = rows[0].spans.at(-1) as Span;
    expect([shortWords(last), sideWords(last)]).toEqual([
      ["not transmitted", ""],
      "its own side; overruled, as it only waits",
    ]);
  });

  it("do not say of the culprit that the fault is on the other side", () => {
    const [before, after] = [moved(2, 5), stood(2, 5, { verdict: "remote" })];
    const [{ rows }] = standingGroups({ ...standing(), spans: [before, after] }, rolesOf([2], [], [0]), 16);
    const last = rows[0].spans.at(-1) as Span;
    expect([shortWords(last), sideWords(last)]).toEqual([
      ["not transmitted", ""],
      "the other side; overruled, as it started it",
    ]);
  });

  it("are cut at the limit, the culprits last of all", () => {
    const groups = standingGroups(standing(8), rolesOf([7], [], []), 3);
    expect(groups.flatMap(({ rows }) => rows.map(({ rank }) => rank))).toEqual([7, 0, 1]);
  });

  it("tell what they did at a moment, and at the end", () => {
    const [{ rows }] = standingGroups(standing(1), rolesOf([], [], []), 16);
    expect([spanAt(rows[0], 2 * SECOND)?.doing, spanAt(rows[0], 10 * SECOND)?.doing]).toEqual([
      "moves",
      "not_transmitted",
    ]);
    expect(spanAt({ ...rows[0], spans: [] }, 0)).toBeNull();
  });
});

describe("words", () => {
  it("say the condition and whose side both ends support", () => {
    expect(shortWords(stood(4, 5))).toEqual(["not transmitted", "its own side"]);
    expect(shortWords(stood(4, 5, { verdict: "undecided" }))).toEqual(["not transmitted", ""]);
    expect(sideWords(stood(4, 5, { verdict: "undecided" }))).toBe("cannot be told");
    expect([shortWords(moved(4, 5)), sideWords(moved(4, 5)), flowWords(moved(4, 5))]).toEqual([["moves", ""], "", ""]);
  });

  it("name the flow and read a receiver's counters from its own side", () => {
    expect(flowWords(stood(4, 5))).toBe("4 → 3, world op 171, channel 0: 8·5·4·4 of 16 chunks");
    const receiver = stood(4, 5, { direction: "receive", peer_rank: -1 });
    expect(flowWords(receiver)).toContain("4 ← ?,");
    expect(doingWords(receiver)).toBe("Received but not flushed");
    expect(shortWords(stood(4, 5, { direction: "receive", doing: "not_delivered" }))[0]).toBe("received, not consumed");
  });

  it("take a stopped or dead process for standing still, and silence for neither", () => {
    const doing = (what: string) => ({ ...moved(1, 5), doing: what });
    expect(["stopped", "gone", "unheard", "moves"].map((what) => isStanding(doing(what)))).toEqual([
      ...[true, true, false, false],
    ]);
  });
});

function drawn(what: ComponentChildren): HTMLElement {
  act(() => render(<main>{what}</main>, document.body));
  return document.body;
}

afterEach(() => {
  act(() => setQuery({ standing: null }));
  act(() => render(null, document.body));
});

const picture = (shown: Standing) => (
  <StandingPicture
    standing={shown}
    lanes={makeLanes()}
    culprits={[2]}
    diagnosis={makeDiagnosis({ victims: [0, 1] })}
    nodeOf={(rank) => `node-${rank}`}
    onSelect={() => undefined}
    pin={null}
  />
);

describe("the picture", () => {
  it("is a sentence where nobody stood still, as in a job that is only slow", () => {
    const slow = { ...standing(), spans: [0, 1, 2].map((rank) => moved(rank, 10)) };
    const page = drawn(picture(slow));
    expect(page.textContent).toContain("Nobody: 3 ranks moved from");
    expect(page.querySelectorAll(".track")).toHaveLength(0);
  });

  it("puts a bar where a span lies and a word beside it, and axe has nothing to say", async () => {
    const page = drawn(picture(standing()));
    const bars = [...page.querySelectorAll<HTMLElement>(".track .bar")].slice(0, 2);
    expect(bars.map((bar) => [bar.className, bar.style.left, bar.style.width])).toEqual([
      ["bar doing-moves ", "0%", "50%"],
      ["bar doing-not_transmitted side-local", "50%", "50%"],
    ]);
    expect(page.querySelector(".blamed")?.textContent).toContain("not transmitted, its own side");
    expect(page.textContent).toContain("all 3 ranks");
    const { violations } = await axe.run(page, {
      rules: { "color-contrast": { enabled: false }, region: { enabled: false } },
    });
    expect(violations.map(({ id }) => id)).toEqual([]);
  });

  it("does not let a receiver that only waits look at fault", () => {
    const waits = stood(0, 5, { doing: "not_delivered", direction: "receive" });
    const spans = [moved(2, 5), stood(2, 5, { doing: "not_delivered" }), moved(0, 5), waits];
    const page = drawn(picture({ ...standing(), spans }));
    expect(page.querySelector(".standing-labels li:not(.blamed)")?.textContent).toContain("received, not consumed");
    expect(page.querySelectorAll(".track .side-overruled")).toHaveLength(1);
    expect(page.querySelectorAll(".track .side-local")).toHaveLength(1);
    const legend = page.querySelector(".legend")?.textContent;
    expect(legend).toContain("not delivered / received, not consumed ②>③");
    expect(legend).toContain("pale: it only waits");
  });

  it("says how many ranks it leaves out", () => {
    const page = drawn(picture({ ...standing(20), omitted: 1004 }));
    expect(page.textContent).toContain("16 of 1,024 ranks");
    expect(page.textContent).toContain("Show 4 more");
    expect(page.textContent).toContain("1,004 ranks not shown");
  });

  it("is a table too", () => {
    act(() => setQuery({ standing: "table" }));
    const page = drawn(picture(standing()));
    expect(page.querySelectorAll("tbody tr")).toHaveLength(6);
    expect(page.querySelector("tbody")?.textContent).toContain("4·4 of 16 chunks");
  });
});
