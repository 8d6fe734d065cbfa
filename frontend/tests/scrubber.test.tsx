/* The scrubber's list: a moment of which nothing can be known is named, and cannot be chosen. */

import { render } from "preact";
import { act } from "preact/test-utils";
import { beforeEach, expect, it, vi } from "vitest";
import type { Moment } from "../src/grid/past";
import { Scrubber } from "../src/grid/Scrubber";
import { Scrub } from "../src/grid/scrub";
import { phase } from "../src/live/socket";
import { pinMoment } from "../src/state/address";
import { box } from "./box";

const FROM_NS = 1_800_000_000_000_000_000;
const mark = (after_s: number, word: string): Moment => ({
  kind: "act",
  at_ns: FROM_NS + after_s * 1e9,
  word,
  number: 0,
});

beforeEach(() => {
  vi.stubGlobal("fetch", () => new Promise(() => {}));
});
it("offers what came after the minutes, but not what came after all that is known", async () => {
  const scrub = new Scrub("incidents/1");
  scrub.moments.value = {
    from_ns: FROM_NS,
    to_ns: FROM_NS + 600e9,
    first_ns: FROM_NS,
    newest_ns: FROM_NS + 900e9,
    is_live: false,
    held: [],
    moments: [mark(60, "triggered")],
    omitted: 0,
    after: [mark(700, "rita commented"), mark(1000, "rita resolved")],
    later: 2,
  };
  await act(async () => render(<Scrubber scrub={scrub} beat="" />, box));
  const options = [...box.querySelectorAll("option")].filter((one) => one.value !== "-1");
  expect(options.map((one) => one.disabled)).toEqual([false, false, true]);
  expect(options[2].textContent).toContain("rita resolved (nothing is known of this time)");
  expect(options[1].textContent).not.toContain("nothing is known");
});

it("counts what it lists, and names the one that was chosen of several at one moment", async () => {
  const scrub = new Scrub("incidents/1");
  const moments = [mark(60, "the fault began"), mark(60, "first symptom")];
  scrub.moments.value = {
    ...{ from_ns: FROM_NS, to_ns: FROM_NS + 600e9, first_ns: FROM_NS, newest_ns: FROM_NS + 900e9, is_live: false },
    ...{ held: [], moments, omitted: 0, after: [mark(700, "rita commented")], later: 1 },
  };
  await act(async () => render(<Scrubber scrub={scrub} beat="" />, box));
  const select = box.querySelector("select") as HTMLSelectElement;
  expect(select.options[0].textContent).toBe("3 moments");
  for (const n of ["1", "0"]) {
    await act(async () => {
      select.value = n;
      select.dispatchEvent(new Event("change", { bubbles: true }));
    });
    expect(select.value).toBe(n);
  }
});

it("calls nothing live on a page that hears nothing", async () => {
  vi.useFakeTimers({ now: FROM_NS / 1e6 + 600_000, toFake: ["Date"] });
  const scrub = new Scrub("incidents/1");
  scrub.moments.value = {
    ...{ from_ns: FROM_NS, to_ns: FROM_NS + 600e9, first_ns: FROM_NS, newest_ns: FROM_NS + 600e9, is_live: true },
    ...{ held: [], moments: [], omitted: 0, after: [], later: 0 },
  };
  const word = () => box.querySelector(".scrubber-shown b")?.textContent;
  await act(async () => pinMoment(null));
  await act(async () => render(<Scrubber scrub={scrub} beat="" />, box));
  expect(word()).toBe("Live");
  await act(async () => {
    phase.value = "stale";
  });
  expect(word()).toBe("Newest");
  vi.useRealTimers();
});
