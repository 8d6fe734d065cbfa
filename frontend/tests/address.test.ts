/* The address holds the moment, the time of the lanes, tab and rank; what one may want to take back is a step. */

import { afterEach, beforeEach, expect, it, vi } from "vitest";
import {
  followLinks,
  go,
  permalink,
  pinMoment,
  pinnedMoment,
  pinnedTime,
  query,
  selectedRank,
  selectRank,
  setQuery,
  stepQuery,
  unreadable,
} from "../src/state/address";

const AT = 1_800_000_030_000;

beforeEach(() => {
  vi.useFakeTimers();
  vi.setSystemTime(1_800_000_000_000);
  go("/incidents/12");
});
afterEach(() => {
  vi.useRealTimers();
});

const later = () => vi.advanceTimersByTime(5000);

it("holds the moment, and lets it go", () => {
  expect(pinnedMoment()).toBeNull();
  pinMoment(AT);
  expect(location.search).toBe(`?at=${AT}`);
  expect(pinnedMoment()).toBe(AT);
  later();
  pinMoment(null);
  expect(location.search).toBe("");
});

it("says which moment it could not read", () => {
  go("/incidents/12?at=noon");
  expect(pinnedMoment()).toBeNull();
  expect(unreadable()).toEqual(["at=noon"]);
});

it("keeps a time of the lanes that holds the moment, and drops one that does not", () => {
  go(`/incidents/12?from=${AT - 5000}&to=${AT + 5000}&dump=7`);
  pinMoment(AT);
  expect(pinnedTime()).toEqual([AT - 5000, AT + 5000]);
  expect(query.value.get("dump")).toBeNull();
  later();
  pinMoment(AT + 60_000);
  expect(pinnedTime()).toBeNull();
});

it("makes a step for each moment, tab and rank, and none for what only changes the view", () => {
  const before = history.length;
  pinMoment(AT);
  later();
  selectRank(3);
  later();
  stepQuery({ tab: "stacks" });
  expect(history.length).toBe(before + 3);
  later();
  setQuery({ grid: "table" });
  stepQuery({ tab: "stacks" });
  expect(history.length).toBe(before + 3);
  expect(selectedRank()).toBe(3);
});

it("takes a slider on its way for one step", () => {
  const before = history.length;
  for (let second = 0; second < 40; second++) {
    pinMoment(AT + second * 1000);
    vi.advanceTimersByTime(100);
  }
  expect(history.length).toBe(before + 1);
  expect(pinnedMoment()).toBe(AT + 39_000);
  pinMoment(null);
  expect(history.length).toBe(before + 2);
  later();
  pinMoment(AT);
  expect(history.length).toBe(before + 3);
});

it("makes a link that shows the same: moment, time of the lanes, tab, rank and zone", () => {
  go(`/incidents/12?tab=stacks&rank=3&at=${AT}&in=state%3Dopen`);
  const link = new URL(permalink("utc", [AT - 1000.5, AT + 1000.5]));
  expect(Object.fromEntries(link.searchParams)).toEqual({
    ...{ tab: "stacks", rank: "3", at: String(AT), z: "utc" },
    ...{ from: String(AT - 1001), to: String(AT + 1001) },
  });
});

it("brings the keyboard to a place in the page, and leaves the address as it is", () => {
  document.body.innerHTML = '<div id="root"><a href="#main">Skip</a><main id="main" tabindex="-1"></main></div>';
  followLinks(document.getElementById("root") as HTMLElement);
  document.querySelector("a")?.click();
  expect(document.activeElement?.id).toBe("main");
  expect([location.pathname, location.hash]).toEqual(["/incidents/12", ""]);
  document.body.innerHTML = "";
});
