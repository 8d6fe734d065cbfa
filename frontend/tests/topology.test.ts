import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it, vi } from "vitest";
import {
  ageOfGrid,
  applyFrame,
  incidentOf,
  type LiveGrid,
  MissedFrame,
  type PackedGrid,
  TopologyFeed,
  unpackGrid,
} from "../src/live/topology";
import type { GridColumns } from "../src/types";
import { makeGrid } from "./fixtures";

/** The bytes that console/incidents/pictures/topology_frames.py writes, which its test compares with the same files. */
function golden(name: string): ArrayBuffer {
  const bytes = readFileSync(join(process.cwd(), "..", "tests", "golden", "topology", `${name}.bin`));
  return bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength) as ArrayBuffer;
}

function shown(offset = 3): LiveGrid {
  const columns = { ...makeGrid(8, 8), state: new Array(8).fill(0), note: new Array(8).fill("") };
  return { columns, place: { name: "topology:12", epoch: "7", offset }, texts: [""] };
}

function packed(offset: number, epoch = "7"): PackedGrid {
  const { note: _, ...columns } = shown().columns;
  const numbered = { texts: [""], at: new Array(8).fill(0) };
  return { ...columns, note: numbered, stream: { name: "topology:12", epoch, offset } } as unknown as PackedGrid;
}

describe("a frame of the grid", () => {
  it("changes the ranks it names and shares all other columns", () => {
    const before = shown();
    const { columns, place } = applyFrame(before, golden("delta"));
    expect(columns.state).toEqual([0, 0, 4, 0, 0, 0, 0, 0]);
    expect(columns.note[2]).toBe("the process is gone");
    expect(place.offset).toBe(4);
    expect(columns.rank).toBe(before.columns.rank);
    expect(before.columns.state[2]).toBe(0);
  });

  it("of all ranks brings any grid of its epoch there", () => {
    const { columns, place } = applyFrame(shown(99), golden("all"));
    expect(columns.state).toEqual([0, 0, 4, 0, 0, 0, 0, 0]);
    expect(place.offset).toBe(4);
  });

  it.each([
    ["comes again", shown(4)],
    ["comes after one that was missed", shown(1)],
    ["is of another epoch", { ...shown(), place: { name: "topology:12", epoch: "8", offset: 3 } }],
  ])("that %s is refused", (_, grid) => {
    expect(() => applyFrame(grid, golden("delta"))).toThrow(MissedFrame);
  });

  const damaged: [string, (view: DataView, m: number) => void][] = [
    ["names a rank the grid does not have", (view) => view.setUint32(24, 8, true)],
    ["names a text that nobody sent", (view) => view.setUint32(28, 9, true)],
    ["has a state that is none", (view) => view.setUint8(32, 8)],
    ["ends in texts that cannot be read", (view, m) => view.setUint8(view.byteLength - m, 0x7b)],
    ["ends in something else than texts", (view, m) => new Uint8Array(view.buffer, view.byteLength - m).fill(0x31)],
    ["ends in bytes that are no characters", (view) => view.setUint8(view.byteLength - 3, 0xff)],
  ];
  it.each(damaged)("that %s is refused, and nothing of it is shown", (_, damage) => {
    const frame = golden("delta");
    const view = new DataView(frame);
    expect(view.getUint32(16, true)).toBe(1);
    damage(view, view.getUint32(20, true));
    const before = shown();
    expect(() => applyFrame(before, frame)).toThrow(MissedFrame);
    expect(before.columns.state).toEqual(new Array(8).fill(0));
  });

  it("says of which incident it is, and bytes that are none say of none", () => {
    expect(incidentOf(golden("delta"))).toBe(12);
    expect(incidentOf(new ArrayBuffer(3))).toBe(-1);
    expect(() => applyFrame(shown(), golden("delta").slice(0, -1))).toThrow(MissedFrame);
  });
});

describe("the packed grid", () => {
  it("has its numbered texts back as columns", () => {
    const { columns } = unpackGrid({ ...packed(3), nic: { texts: ["mlx5_0"], at: new Array(8).fill(0) } });
    expect(columns.nic).toEqual(new Array(8).fill("mlx5_0"));
    expect(columns.note).toEqual(new Array(8).fill(""));
    expect(columns.node).toEqual(shown().columns.node);
  });
});

describe("the feed of a grid", () => {
  function follow(...answers: PackedGrid[]) {
    const seen: GridColumns[] = [];
    let asked = 0;
    const feed = new TopologyFeed({
      number: 12,
      fetchGrid: async () => answers[Math.min(asked++, answers.length - 1)],
      subscribe: () => {},
      onColumns: (columns) => seen.push(columns),
    });
    return { feed, seen, asked: () => asked };
  }

  it("shows the grid, then what a frame makes of it", async () => {
    const { feed, seen } = follow(packed(3));
    await feed.load();
    feed.take(golden("delta"));
    expect(seen.at(-1)?.state[2]).toBe(4);
    expect(feed.place?.offset).toBe(4);
  });

  it("applies frames that came while the grid was on its way, once", async () => {
    const { feed, seen } = follow(packed(3));
    const loaded = feed.load();
    feed.take(golden("delta"));
    feed.take(golden("delta"));
    await loaded;
    expect(seen.at(-1)?.state[2]).toBe(4);
    expect(feed.place?.offset).toBe(4);
  });

  it("fetches the grid anew when frames were missed", async () => {
    const { feed, asked } = follow(packed(1), packed(4));
    await feed.load();
    feed.take(golden("delta"));
    await feed.load();
    expect(asked()).toBe(2);
    expect(feed.place?.offset).toBe(4);
  });

  it("keeps newer states when the grid that lies ready is older than what frames have told", async () => {
    const { feed, seen } = follow(packed(3), packed(3));
    await feed.load();
    feed.take(golden("delta"));
    await feed.load();
    expect(seen.at(-1)?.state[2]).toBe(4);
    expect(feed.place?.offset).toBe(4);
    expect(seen.at(-1)?.rank).toBe(seen[0].rank);
  });

  it("asks again soon when the grid could not be fetched, until it is left", async () => {
    vi.useFakeTimers();
    const answers: (PackedGrid | Error)[] = [packed(1), new Error("away"), new Error("away"), packed(4)];
    let asked = 0;
    const feed = new TopologyFeed({
      number: 12,
      fetchGrid: async () => {
        const next = answers[Math.min(asked++, answers.length - 1)];
        if (next instanceof Error) throw next;
        return next;
      },
      subscribe: () => {},
      onColumns: () => {},
    });
    await feed.load();
    feed.take(golden("delta"));
    await vi.advanceTimersByTimeAsync(10_000);
    expect([asked, feed.place?.offset]).toEqual([4, 4]);
    feed.take(golden("all").slice(0, -1));
    answers.push(new Error("away"));
    asked = answers.length - 1;
    feed.loadSoon();
    await vi.advanceTimersByTimeAsync(1);
    feed.stop();
    const before = asked;
    await vi.advanceTimersByTimeAsync(60_000);
    expect(asked).toBe(before);
    vi.useRealTimers();
  });

  it("hears that nobody draws the grid any more, for as long as that is said", async () => {
    vi.useFakeTimers({ now: 1_000_000 });
    const { feed, asked } = follow(packed(3));
    await feed.load();
    const age = new ArrayBuffer(24);
    const view = new DataView(age);
    view.setUint8(0, 3);
    view.setUint8(1, 1);
    view.setUint32(12, 12, true);
    view.setUint32(16, 43_000, true);
    expect(ageOfGrid(12, Date.now())).toBeNull();
    feed.take(age);
    expect([ageOfGrid(12, Date.now() + 1000), ageOfGrid(13, Date.now()), asked()]).toEqual([44_000, null, 1]);
    expect(ageOfGrid(12, Date.now() + 5000)).toBeNull();
    vi.useRealTimers();
  });

  it("lets frames of other incidents go", async () => {
    const { feed, seen } = follow(packed(3));
    await feed.load();
    const other = golden("delta");
    new DataView(other).setUint32(12, 13, true);
    feed.take(other);
    expect(seen).toHaveLength(1);
  });
});
