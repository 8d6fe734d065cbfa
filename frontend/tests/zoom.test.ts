import { describe, expect, it } from "vitest";
import { laneColumns } from "../src/lanes/scale";
import { inSight } from "../src/lanes/useSight";
import { moved, SPAN_MIN_NS, within, zoomed } from "../src/lanes/zoom";
import { makeLane, SECOND } from "./fixtures";

const WHOLE = { from_ns: 0, to_ns: 60 * SECOND };

describe("zooming the lanes", () => {
  it("keeps the moment under the pointer where it is", () => {
    const span = zoomed(WHOLE, WHOLE, 0.5, 15 * SECOND);
    expect(span).toEqual({ from_ns: 7.5 * SECOND, to_ns: 37.5 * SECOND });
  });

  it("never shows less than half a second, nor more than there is", () => {
    const narrow = { from_ns: 0, to_ns: SPAN_MIN_NS };
    expect(zoomed(narrow, WHOLE, 0.5, 0)).toEqual(narrow);
    expect(zoomed({ from_ns: 0, to_ns: 40 * SECOND }, WHOLE, 2, 0)).toBeNull();
  });

  it("stays inside the whole when it is moved, and when the whole has moved", () => {
    const span = { from_ns: 50 * SECOND, to_ns: 58 * SECOND };
    expect(moved(span, WHOLE, 1)).toEqual({ from_ns: 52 * SECOND, to_ns: 60 * SECOND });
    expect(within(span, { from_ns: 55 * SECOND, to_ns: 115 * SECOND })).toEqual({
      from_ns: 55 * SECOND,
      to_ns: 63 * SECOND,
    });
  });
});

describe("what of the lanes is drawn", () => {
  it("is the same columns zoomed in, whether other ticks are there or not", () => {
    const lane = makeLane();
    const part = { ...lane };
    const keep = lane.t_ns.map((ns, i) => [ns, i] as const).filter(([ns]) => ns >= 3 * SECOND && ns <= 7 * SECOND);
    for (const name of ["t_ns", "posted", "ready", "transmitted", "done", "stuck_ms", "ops"] as const)
      part[name] = keep.map(([, i]) => lane[name][i]);
    expect(laneColumns(lane, 4 * SECOND, 6 * SECOND, 500)).toEqual(laneColumns(part, 4 * SECOND, 6 * SECOND, 500));
  });

  it("begins with the tick that still holds at the left edge", () => {
    const [first] = laneColumns(makeLane({ t_ns: [0, SECOND] }), 0.1 * SECOND, SECOND, 900);
    expect(first.x).toBe(0);
  });

  it("covers lanes that are not tall whole, wherever the page is scrolled to", () => {
    expect(inSight(-3000, 800, 900)).toEqual({ top: 0, bottom: 900 });
  });

  it("covers what is in sight and a margin, never beyond the lanes", () => {
    expect(inSight(-300, 800, 20_000)).toEqual({ top: 0, bottom: 768 });
    const { top, bottom } = inSight(10_000, 800, 20_000);
    expect(top).toBeLessThanOrEqual(10_000 - 256);
    expect(bottom).toBeGreaterThanOrEqual(10_800 + 256);
    expect(bottom - top).toBeLessThan(2000);
    expect(inSight(50_000, 800, 20_000)).toEqual({ top: 20_000, bottom: 20_000 });
  });
});
