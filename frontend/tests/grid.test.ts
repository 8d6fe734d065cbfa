import { describe, expect, it } from "vitest";
import { worstFirst } from "../src/grid/GridTable";
import { cellAt, cellBeside, GAPS_MAX, type GridLayout, groupsInOrder, layoutGrid } from "../src/grid/layout";
import { numberHeight, packed } from "../src/grid/paint";
import { cellSentence, countsByState } from "../src/grid/words";
import { heightInSight, isInSight, magnified, scrolledTo, timesMax } from "../src/grid/zoom";
import { makeGrid } from "./fixtures";

const overlaps = (layout: GridLayout) => {
  const seen = new Set<string>();
  for (let i = 0; i < layout.x.length; i++) seen.add(`${layout.x[i]},${layout.y[i]}`);
  return layout.x.length - seen.size;
};

describe("layout of the grid", () => {
  it.each([
    [8, 2],
    [64, 8],
    [1000, 8],
    [10_000, 8],
    [100_000, 8],
    [300, 300],
  ])("gives each of %i ranks on nodes of %i a cell of its own, inside the width", (nRanks, perNode) => {
    for (const width of [340, 1300]) {
      const layout = layoutGrid(makeGrid(nRanks, perNode), "node", width);
      expect(overlaps(layout)).toBe(0);
      expect(Math.max(...layout.x) + layout.size).toBeLessThanOrEqual(width + 1);
      expect(Math.max(...layout.y) + layout.size).toBeLessThanOrEqual(layout.height + 1);
    }
  });

  it("shows 10,000 ranks on one screen, with gaps", () => {
    const layout = layoutGrid(makeGrid(10_000, 8), "node", 1300);
    expect(layout.height).toBeLessThan(450);
    expect(layout.gap).toBe(1);
  });

  it("gives up the gaps, and only the gaps, above the limit", () => {
    const layout = layoutGrid(makeGrid(GAPS_MAX + 8, 8), "node", 1300);
    expect(layout.dense).toBe(true);
    expect(layout.gap).toBe(0);
    expect([...layout.x, ...layout.y].every((place) => place % layout.size === 0)).toBe(true);
  });

  it("keeps the ranks of a node together, in the order of their local ranks", () => {
    const layout = layoutGrid(makeGrid(8, 2), "node", 800);
    expect(layout.labels.map((label) => label.text)).toEqual(["node-0", "node-1", "node-2", "node-3"]);
    expect(layout.x[5]).toBe(layout.x[4] + layout.size + layout.gap);
    expect(layout.y[5]).toBe(layout.y[4]);
  });

  it("can order by place in TP × PP × DP", () => {
    const layout = layoutGrid(makeGrid(16, 2), "parallel", 1200);
    expect(layout.labels.map((label) => label.text).slice(0, 2)).toEqual(["PP 0 · DP 0", "PP 0 · DP 1"]);
  });

  it("can order by rack, racks as people count them and those unknown last", () => {
    const grid = { ...makeGrid(8, 2), racks: ["r10", "r2", "", "r2"] };
    const groups = groupsInOrder(grid, "rack");
    expect(groups.map((group) => group.label)).toEqual(["r2", "r10", "rack unknown"]);
    expect(groups[0].members).toEqual([2, 3, 6, 7]);
    expect(cellSentence(grid, 4)).toContain("rack unknown, node-2");
    expect(cellSentence(grid, 0)).toContain("rack r10, node-0");
  });

  it("orders by node where no rack is known", () => {
    const grid = { ...makeGrid(4, 2), racks: ["", ""] };
    expect(groupsInOrder(grid, "rack").map((group) => group.label)).toEqual(["node-0", "node-1"]);
    expect(cellSentence(grid, 0)).not.toContain("rack");
  });

  it("gives each place of experts a box of its own", () => {
    const grid = makeGrid(8, 2);
    const of = (values: number[]) => ({
      ...grid,
      tp: [...grid.rank].fill(0),
      pp: [...grid.rank].fill(0),
      dp: [...grid.rank].fill(0),
      ep: values,
    });
    const groups = groupsInOrder(of([0, 0, 0, 0, 1, 1, -1, -1]), "parallel");
    expect(groups.map((group) => group.label)).toEqual([
      "PP 0 · DP 0 · EP ?",
      "PP 0 · DP 0 · EP 0",
      "PP 0 · DP 0 · EP 1",
    ]);
    expect(groups[2].members).toEqual([4, 5]);
  });

  it("keeps places of which a part is unknown apart from those next to them", () => {
    const grid = { ...makeGrid(4, 2), pp: [0, 1, -1, 1], dp: [1, -1, -1, 0], ep: [-1, -1, -1, -1] };
    const labels = groupsInOrder(grid, "parallel").map((group) => group.label);
    expect(labels).toEqual(["PP 0 · DP 1", "PP 1 · DP ?", "PP 1 · DP 0", "place unknown"]);
  });

  it("places ranks without a node last, rather than nowhere", () => {
    const grid = makeGrid(4, 2);
    grid.node[0] = -1;
    const layout = layoutGrid(grid, "node", 800);
    expect(layout.labels.at(-1)?.text).toBe("node unknown");
    expect(overlaps(layout)).toBe(0);
  });
});

describe("zoom of the grid", () => {
  it.each([8, 1000, 100_000])(
    "makes each of %i cells large enough for a finger, and finds it where it is drawn",
    (n) => {
      for (const width of [340, 1300]) {
        const layout = layoutGrid(makeGrid(n, 8), "node", width);
        const times = timesMax(layout);
        const view = { times, left: 0, top: 0 };
        const whole = magnified(layout, view, layout.height * times);
        expect(whole.size + whole.gap).toBeGreaterThanOrEqual(44);
        for (const cell of [0, n >> 1, n - 1]) {
          const middle = { x: layout.x[cell] + layout.size / 2, y: layout.y[cell] + layout.size / 2 };
          const place = scrolledTo(middle, times, { x: 100, y: 50 });
          const drawn = magnified(layout, { times, ...place }, 420);
          expect(cellAt(drawn, 100, 50)).toBe(cell);
          expect(isInSight(drawn, cell)).toBe(true);
        }
      }
    },
  );

  it("draws touching cells with gaps once they are large, and leaves those with gaps as they are", () => {
    const dense = layoutGrid(makeGrid(GAPS_MAX + 8, 8), "node", 1300);
    const at = (times: number) => magnified(dense, { times, left: 0, top: 0 }, 420);
    expect([at(1.2).dense, at(1.2).gap]).toEqual([true, 0]);
    expect([at(timesMax(dense)).dense, at(timesMax(dense)).gap]).toEqual([false, 1]);
  });

  it("writes no number that is wider than its cell", () => {
    expect(numberHeight(56, 63)).toBe(15);
    expect(5 * 0.68 * numberHeight(47, 99_999)).toBeLessThanOrEqual(47 - 4);
  });

  it("stays on the window however large the grid becomes", () => {
    const layout = layoutGrid(makeGrid(100_000, 8), "node", 340);
    expect(heightInSight(layout, 8, 800)).toBe(560);
    expect(heightInSight(layout, 1, 800)).toBe(layout.height);
  });
});

describe("moving in the grid", () => {
  const layout = layoutGrid(makeGrid(16, 2), "node", 400);

  it("finds the cell under a point, and none outside", () => {
    for (const cell of [0, 7, 15]) expect(cellAt(layout, layout.x[cell] + 2, layout.y[cell] + 2)).toBe(cell);
    expect(cellAt(layout, -5, -5)).toBe(-1);
  });

  it("goes right and comes back left", () => {
    expect(cellBeside(layout, 0, "right")).toBe(1);
    expect(cellBeside(layout, 1, "left")).toBe(0);
  });

  it("stays at the edge", () => {
    expect(cellBeside(layout, 0, "left")).toBe(0);
    expect(cellBeside(layout, 0, "up")).toBe(0);
  });

  it("reaches every cell by arrow keys alone", () => {
    const seen = new Set([0]);
    for (const from of seen) {
      for (const direction of ["left", "right", "up", "down"] as const) seen.add(cellBeside(layout, from, direction));
    }
    expect(seen.size).toBe(16);
  });
});

describe("the grid in words", () => {
  const grid = makeGrid(8, 2, { 4: "culprit", 3: "unknown" });

  it("says what a cell is", () => {
    expect(cellSentence(grid, 4)).toBe(
      "Rank 4, node-2, GPU 0000:18:00.0, Culprit, its NIC is down, last seen 300 ms ago",
    );
  });

  it("never calls a rank that was not seen healthy", () => {
    expect(cellSentence(grid, 3)).toContain("Unknown, never seen");
  });

  it("counts every rank exactly once", () => {
    expect(countsByState(grid).reduce((sum, { n }) => sum + n, 0)).toBe(8);
  });

  it("lists culprits first in the table", () => {
    expect(worstFirst(grid).slice(0, 2)).toEqual([4, 3]);
  });

  it("packs a colour the way the canvas stores it", () => {
    expect(packed("rgb(213, 94, 0)")).toBe(0xff005ed5);
  });
});
