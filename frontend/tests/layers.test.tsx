/* Colour layers of the grid: which colour a value has, what is said of it, the legend, the table, the choice. */

import axe from "axe-core";
import { render } from "preact";
import { act } from "preact/test-utils";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { tellingOrder } from "../src/grid/GridTable";
import { type By, classMark, type Layer, LEVELS, levelOf, paintedBy, valueWords } from "../src/grid/layers";
import { fillName, smallFillName } from "../src/grid/paint";
import { TopologyGrid } from "../src/grid/TopologyGrid";
import { followed } from "../src/grid/useLayer";
import { cellSentence } from "../src/grid/words";
import { query, setQuery } from "../src/state/address";
import { makeGrid } from "./fixtures";

function makeLayer(changes: Partial<Layer> = {}): Layer {
  return {
    by: "op_lag",
    unit: "ops",
    at: "2026-11-21T13:02:39.000Z",
    until: null,
    says: "Collectives entered.",
    nothing: "",
    n_unknown: 1,
    low: 0,
    middle: 0,
    high: 40,
    full: 40,
    value: [0, 0, 40, null],
    note: { texts: ["", "in dp0", "never reported"], at: [0, 0, 1, 2] },
    classes: [],
    is_settled: true,
    ...changes,
  };
}

const classes = makeLayer({
  by: "stack_class",
  unit: "",
  low: null,
  middle: null,
  high: null,
  full: null,
  value: [1, 1, 0, null],
  classes: [
    { said: "data loader: __next__", n_ranks: 1, is_most: false },
    { said: "in a collective", n_ranks: 2, is_most: true },
  ],
});
const grid = makeGrid(4, 2, { 2: "culprit" });

describe("the colours of a layer", () => {
  it("rise with the value, and the first is nothing at all", () => {
    expect([-3, 0, 0.1, 20, 39, 40, 99].map((value) => levelOf(value, 40))).toEqual([0, 0, 0, 3, 6, 6, 6]);
    expect([0, 1, 40].map((n) => levelOf(n, 40, true))).toEqual([0, 1, 6]);
    expect(levelOf(0, 0)).toBe(0);
  });

  it("are never those of the scale where nothing is known, or of a rank the layer does not speak of", () => {
    const { states, state } = paintedBy(makeGrid(6, 2), makeLayer());
    expect([...state].map((code) => states[code])).toEqual([
      "level-0",
      "level-0",
      `level-${LEVELS - 1}`,
      "unknown",
      "unknown",
      "unknown",
    ]);
  });

  it("of stack classes have the many quiet, and share the last where there are many", () => {
    expect([classMark(classes, 0), classMark(classes, 1)]).toEqual(["class-1", "same"]);
    const many = { ...classes, classes: Array.from({ length: 9 }, () => ({ said: "x", n_ranks: 1, is_most: false })) };
    expect(classMark(many, 8)).toBe("class-6");
    const { states, state } = paintedBy(grid, classes);
    expect([...state].map((code) => states[code])).toEqual(["same", "same", "class-1", "unknown"]);
  });

  it("leave their hatch to ranks of whom nothing is heard now, whatever was measured of them", () => {
    const now = makeGrid(5, 5, { 1: "dead", 2: "silent", 3: "unknown", 4: "ok" });
    const { states, state } = paintedBy(now, makeLayer({ value: [0, 0, 40, 0, 0] }));
    const words = [...state].map((code) => states[code]);
    expect(words).toEqual(["level-0", "level-0 dead", "level-6 silent", "level-0 unknown", "level-0"]);
    expect(words.slice(0, 3).map(fillName)).toEqual(["layer-0", "layer-0", "layer-6"]);
    expect(words.slice(0, 3).map(smallFillName)).toEqual(["layer-0", "rank-dead", "rank-silent"]);
    const ofClasses = paintedBy(makeGrid(4, 2, { 0: "dead" }), classes);
    expect([...ofClasses.state].map((code) => ofClasses.states[code])).toEqual([
      "same dead",
      "same",
      "class-1",
      "unknown",
    ]);
  });

  it("take typed arrays, so that a hundred thousand ranks are painted as fast as their states", () => {
    expect(paintedBy(grid, makeLayer()).state).toBeInstanceOf(Uint16Array);
  });
});

describe("what a layer says of a rank", () => {
  it.each<[By, number, string]>([
    ["op_lag", 40, "40 ops behind, in dp0"],
    ["op_lag", 1, "1 op behind, in dp0"],
    ["op_lag", 0, "as far as the furthest, in dp0"],
    ["bandwidth", 2.34e10, "23.4 GB/s, in dp0"],
    ["bandwidth", 0, "0 B/s, in dp0"],
    ["stage_lateness", 3.25, "3.25 ms late, in dp0"],
    ["stage_lateness", -3.2, "3.2 ms ahead, in dp0"],
  ])("of %s %d is %s", (by, value, words) => {
    const unit = { op_lag: "ops", bandwidth: "B/s", stage_lateness: "ms", stack_class: "" }[by];
    expect(valueWords(makeLayer({ by, unit, value: [0, 0, value] }), 2)).toBe(words);
  });

  it("is that it is not known, and why", () => {
    expect(valueWords(makeLayer(), 3)).toBe("unknown: never reported");
    expect(valueWords(makeLayer({ note: { texts: [], at: [] }, nothing: "no stacks were taken" }), 9)).toContain(
      "no stacks",
    );
  });

  it("is read out with the rank", () => {
    expect(cellSentence(grid, 2, makeLayer())).toMatch(/^Rank 2, .*Op lag 40 ops behind, in dp0, Culprit/);
    expect(cellSentence(grid, 2)).not.toContain("Op lag");
  });

  it("puts the most telling first in the table, and the unknown last", () => {
    expect(tellingOrder(grid, makeLayer())).toEqual([2, 0, 1, 3]);
    expect(tellingOrder(grid, classes)).toEqual([2, 0, 1, 3]);
  });
});

describe("the grid coloured by a layer", () => {
  let answer: Layer;
  let asked: string[];
  beforeEach(() => {
    asked = [];
    vi.stubGlobal("fetch", async (url: string) => {
      asked.push(url);
      return new Response(JSON.stringify(answer), { status: 200 });
    });
  });
  afterEach(() => {
    act(() => render(null, document.body));
    setQuery({ colour: null, grid: null, at: null });
    vi.unstubAllGlobals();
  });

  async function drawn(columns = grid): Promise<HTMLElement> {
    const shown = <TopologyGrid columns={columns} selected={null} onSelect={() => undefined} source="incidents/12" />;
    act(() => render(<main>{shown}</main>, document.body));
    await vi.waitFor(() => {
      act(() => undefined);
      expect(document.querySelector(".layer-legend")).not.toBeNull();
    });
    return document.body;
  }

  it("is chosen beside the order, stands in the address, and has a legend with its unit", async () => {
    answer = makeLayer();
    act(() =>
      render(<TopologyGrid columns={grid} selected={null} onSelect={() => undefined} source="jobs/3" />, document.body),
    );
    const select = document.querySelector(".colour-by select") as HTMLSelectElement;
    expect(select.value).toBe("state");
    expect(asked).toEqual([]);
    act(() => {
      select.value = "op_lag";
      select.dispatchEvent(new Event("change", { bubbles: true }));
    });
    expect(query.value.get("colour")).toBe("op_lag");
    await vi.waitFor(() => expect(document.querySelector(".layer-legend")).not.toBeNull());
    expect(asked).toEqual(["/api/v1/jobs/3/grid/layer?by=op_lag"]);
    const legend = document.querySelector(".layer-legend")?.textContent ?? "";
    for (const words of ["40 ops", "median 0 ops", "Unknown 1", "Culprit 1", "As at 13:02:39"])
      expect(legend).toContain(words);
  });

  it("says of how many ranks nothing is heard, and how old what it shows of a running job is", async () => {
    answer = makeLayer({ is_settled: false, at: new Date(Date.now() - 600_000).toISOString() });
    setQuery({ colour: "op_lag" });
    const heard = makeGrid(4, 2, { 0: "dead", 1: "silent", 3: "unknown" });
    const legend = (await drawn(heard)).querySelector(".layer-legend")?.textContent ?? "";
    for (const words of ["Dead 1", "Silent 1", "Not heard 1", "Measured 10 min ago."]) expect(legend).toContain(words);
  });

  it("says from when to when it was measured, where its parts are of different times", async () => {
    answer = makeLayer({ by: "stage_lateness", unit: "ms", until: "2026-11-21T13:11:00.000Z" });
    setQuery({ colour: "stage_lateness" });
    expect((await drawn()).querySelector(".layer-said")?.textContent).toContain("As at 13:02:39 to 13:11:00 UTC.");
  });

  it("asks for the moment that is shown", async () => {
    answer = makeLayer();
    setQuery({ colour: "bandwidth", at: "1795421021000" });
    await drawn();
    expect(asked).toEqual(["/api/v1/incidents/12/grid/layer?by=bandwidth&at_ns=1795421021000000000"]);
  });

  it("says why nothing is known, and colours nobody as healthy", async () => {
    answer = makeLayer({
      by: "stack_class",
      nothing: "no stacks were taken",
      value: [null, null, null, null],
      n_unknown: 4,
    });
    setQuery({ colour: "stack_class" });
    expect((await drawn()).querySelector(".layer-said")?.textContent).toBe("No stacks were taken.");
    expect(new Set([...paintedBy(grid, answer).state].map((code) => paintedBy(grid, answer).states[code]))).toEqual(
      new Set(["unknown"]),
    );
  });

  it("has a column of it in the table, and axe finds nothing", async () => {
    answer = classes;
    setQuery({ colour: "stack_class", grid: "table" });
    const page = await drawn();
    expect([...page.querySelectorAll("th")].map((one) => one.textContent)).toContain("Stack class");
    expect(page.querySelector("tbody tr")?.textContent).toContain("data loader: __next__");
    expect((await axe.run(page, { rules: { "color-contrast": { enabled: false } } })).violations).toEqual([]);
  });
});

describe("a layer that is followed", () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  it("is asked again until it is settled, and after a failure soon", async () => {
    const answers = [new Error("away"), makeLayer({ is_settled: false }), makeLayer()];
    const told: string[] = [];
    const read = async () => {
      const next = answers.shift();
      if (next instanceof Error || !next) throw next;
      return next;
    };
    const end = followed(read, 0, {
      said: (one) => told.push(String(one.is_settled)),
      failed: (why) => told.push(why),
    });
    await vi.advanceTimersByTimeAsync(1);
    expect(told).toEqual(["away"]);
    await vi.advanceTimersByTimeAsync(2000);
    expect(told).toEqual(["away", "false"]);
    await vi.advanceTimersByTimeAsync(60_000);
    expect(told).toEqual(["away", "false", "true"]);
    end();
  });

  it("that ended says nothing any more", async () => {
    const told: string[] = [];
    const end = followed(async () => makeLayer(), 250, {
      said: () => told.push("said"),
      failed: (why) => told.push(why),
    });
    end();
    await vi.advanceTimersByTimeAsync(60_000);
    expect(told).toEqual([]);
  });
});
