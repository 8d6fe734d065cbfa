/* The topology grid as one works it: orders that say something, zoom by keys and buttons. */

import axe from "axe-core";
import { render } from "preact";
import { act } from "preact/test-utils";
import { afterEach, describe, expect, it } from "vitest";
import { TopologyGrid } from "../src/grid/TopologyGrid";
import { query, setQuery } from "../src/state/address";
import { serverNow } from "../src/state/clock";
import type { GridColumns } from "../src/types";
import { makeGrid } from "./fixtures";

const nothing = () => undefined;

function drawn(columns: GridColumns, selected: number | null = null): HTMLElement {
  const grid = <TopologyGrid columns={columns} selected={selected} onSelect={nothing} />;
  act(() => render(<main>{grid}</main>, document.body));
  return document.body;
}

afterEach(() => {
  act(() => render(null, document.body));
  setQuery({ order: null, grid: null });
});

const buttonOf = (page: HTMLElement, word: string) =>
  [...page.querySelectorAll("button")].find(
    (one) => (one.getAttribute("aria-label") ?? one.textContent) === word,
  ) as HTMLButtonElement;

describe("the order of the topology grid", () => {
  it("can be by rack where a node declares its rack, and the address keeps it", () => {
    const page = drawn({ ...makeGrid(16, 8), racks: ["r1", ""] });
    act(() => buttonOf(page, "By rack").click());
    expect(query.value.get("order")).toBe("rack");
  });

  it("says why it cannot be by rack where none does", () => {
    setQuery({ order: "rack" });
    const page = drawn({ ...makeGrid(16, 8), racks: ["", ""] });
    expect(buttonOf(page, "By rack").disabled).toBe(true);
    expect(buttonOf(page, "By rack").title).toContain("DIOGENES_RACK");
    expect(buttonOf(page, "By node").getAttribute("aria-pressed")).toBe("true");
  });

  it("names EP where there are experts only", () => {
    const grid = makeGrid(16, 8);
    expect(buttonOf(drawn(grid), "TP × PP × DP")).toBeDefined();
    const page = drawn({ ...grid, ep: grid.rank.map((rank) => rank % 2) });
    expect(buttonOf(page, "TP × PP × DP × EP")).toBeDefined();
  });
});

describe("the age of the topology grid", () => {
  const drawnOf = (source: "jobs/3" | "", msAgo: number, when = "") => {
    const columns = { ...makeGrid(16, 8), at: new Date(serverNow() - msAgo).toISOString() };
    const grid = <TopologyGrid columns={columns} selected={null} onSelect={nothing} source={source} when={when} />;
    act(() => render(<main>{grid}</main>, document.body));
    return document.querySelector(".panel-head .faint")?.textContent ?? "";
  };

  it("is said of a job whose grid was read long ago, not of an earlier moment that is wanted", () => {
    expect(drawnOf("jobs/3", 40_000)).toContain("drawn 40 s ago");
    expect(drawnOf("jobs/3", 3000)).not.toContain("drawn");
    expect(drawnOf("jobs/3", 40_000, "as at 13:02:39 UTC")).not.toContain("drawn");
  });
});

describe("the zoom of the topology grid", () => {
  const overlay = (page: HTMLElement) => page.querySelector(".grid-overlay") as HTMLElement;
  const press = (page: HTMLElement, key: string) =>
    act(() => void overlay(page).dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true })));
  const isZoomed = (page: HTMLElement) => overlay(page).classList.contains("zoomed");

  it("goes in by plus, out by minus, and back to all by 0", async () => {
    const page = drawn(makeGrid(1000, 8), 5);
    expect(isZoomed(page)).toBe(false);
    press(page, "+");
    expect(isZoomed(page)).toBe(true);
    expect(await complaints()).toEqual([]);
    press(page, "-");
    expect(isZoomed(page)).toBe(false);
    press(page, "+");
    press(page, "+");
    press(page, "0");
    expect(isZoomed(page)).toBe(false);
  });

  it("goes in by its button until cells are large, then no further", () => {
    const page = drawn(makeGrid(1000, 8));
    for (let i = 0; i < 12 && !buttonOf(page, "Zoom in").disabled; i++) act(() => buttonOf(page, "Zoom in").click());
    expect(buttonOf(page, "Zoom in").disabled).toBe(true);
    act(() => buttonOf(page, "All").click());
    expect(isZoomed(page)).toBe(false);
  });
});

async function complaints(): Promise<string[]> {
  const rules = { "color-contrast": { enabled: false }, region: { enabled: false } };
  const { violations } = await axe.run(document.body, { rules });
  return violations.map(({ id, nodes }) => `${id}: ${nodes[0].html}`);
}
