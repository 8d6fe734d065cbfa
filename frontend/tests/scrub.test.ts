/* The moment shown: bytes of the server, one question at a time, the latest wish wins, nothing shown under another time. */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import {
  endWords,
  gapsOf,
  laterWords,
  minutesOf,
  momentAt,
  momentBeside,
  nearWords,
  placeAt,
  valueAt,
  whole,
} from "../src/grid/minutes";
import { BadPast, decodePast, gridThen, type Moment, type Moments, NEVER, type Past } from "../src/grid/past";
import { Scrub } from "../src/grid/scrub";
import { whenWords } from "../src/grid/useGridShown";
import { cellWords } from "../src/grid/words";
import { makeGrid, STATES } from "./fixtures";

const FROM = 1_800_000_000_000;

function golden(): ArrayBuffer {
  const file = readFileSync(join(process.cwd(), "..", "tests", "golden", "grid-past.bin"));
  return file.buffer.slice(file.byteOffset, file.byteOffset + file.byteLength) as ArrayBuffer;
}

/** Bytes of a grid in which all `n` ranks have the state of this code. */
function bytesOf(atMs: number, code = 0, n = 8, isSettled = true): ArrayBuffer {
  const tail = new TextEncoder().encode(JSON.stringify({ states: STATES, notes: [""], diagnosis: null, said: "" }));
  const body = new ArrayBuffer(24 + 7 * n + tail.length);
  const view = new DataView(body);
  new Uint8Array(body).set(new TextEncoder().encode("DGSP"));
  view.setUint8(4, 1);
  view.setUint8(5, isSettled ? 1 : 0);
  view.setBigUint64(8, BigInt(atMs) * 1_000_000n, true);
  view.setUint32(16, n, true);
  view.setUint32(20, tail.length, true);
  new Uint8Array(body, 24 + 6 * n, n).fill(code);
  new Uint8Array(body, 24 + 7 * n).set(tail);
  return body;
}

function makeMoments(changes: Partial<Moments> = {}): Moments {
  const ns = FROM * 1e6;
  return {
    ...{ from_ns: ns, to_ns: ns + 600e9, first_ns: ns, newest_ns: ns + 600e9, is_live: true },
    held: [{ from_ns: ns, to_ns: ns + 600e9 }],
    moments: [],
    ...{ omitted: 0, after: [], later: 0 },
    ...changes,
  };
}

const mark = (kind: Moment["kind"], ms: number, word: string): Moment => ({ kind, at_ns: ms * 1e6, word, number: 0 });

describe("bytes of an earlier moment", () => {
  it("are read as the server wrote them", () => {
    const past = decodePast(golden());
    expect(past.atMs).toBe(1_795_421_021_000);
    expect([...past.state].map((code) => past.states[code])).toEqual(["ok", "culprit", "waiting", "unknown"]);
    expect([...past.seenMs]).toEqual([400, 1400, 0, NEVER]);
    expect(past.notes[past.note[2]]).toBe("waits for rank 1: op 7");
    expect([past.diagnosis, past.said, past.isSettled]).toEqual([3, "", false]);
  });

  it("that are something else, or cut off, are refused", () => {
    for (const body of [new ArrayBuffer(0), new ArrayBuffer(40), golden().slice(0, -1)]) {
      expect(() => decodePast(body)).toThrow(BadPast);
    }
  });
});

describe("the grid of an earlier moment", () => {
  const past = decodePast(golden());

  it("has the places of the newest and the states of then", () => {
    const columns = makeGrid(4, 2);
    const then = gridThen(columns, past);
    expect(then.node).toBe(columns.node);
    expect(then.state.map((code) => then.states[code])).toEqual(["ok", "culprit", "waiting", "unknown"]);
    expect(cellWords(then, 1).seen).toBe("last seen 1.4 s before");
    expect(cellWords(then, 3).seen).toContain("not seen");
  });

  it("does not call a rank healthy that joined later, nor one in a state nobody knows here", () => {
    const then = gridThen(makeGrid(6, 2), { ...past, states: ["fine", ...past.states.slice(1)] });
    expect(then.state.map((code) => then.states[code])).toEqual([
      ...["unknown", "culprit", "waiting", "unknown", "unknown", "unknown"],
    ]);
  });

  it("says which moment it is of while another is being read", () => {
    expect(whenWords(past.atMs, past)).toMatch(/^as at .* blamed as by diagnosis 3$/);
    expect(whenWords(past.atMs + 1000, past)).toMatch(/^as at [\d:]+ UTC$/);
    expect(whenWords(past.atMs, null)).toContain("is being read; this is the newest");
  });
});

describe("minutes on a slider", () => {
  it("mean whole seconds, and at the right end the newest", () => {
    const minutes = minutesOf(makeMoments());
    expect([minutes.steps, minutes.newest]).toEqual([600, 618]);
    expect(momentAt(minutes, 0)).toBe(FROM);
    expect(momentAt(minutes, 600)).toBe(FROM + 600_000);
    expect(momentAt(minutes, 601)).toBeNull();
    for (const value of [0, 17, 600]) expect(valueAt(minutes, momentAt(minutes, value))).toBe(value);
    expect(valueAt(minutes, null)).toBe(minutes.newest);
    expect(valueAt(minutes, FROM - 99_000)).toBe(0);
    expect(placeAt(minutes, FROM + 309_000)).toBeCloseTo(0.5);
  });

  it("say where they end, and what lies between their end and the newest", () => {
    const ns = FROM * 1e6;
    expect(endWords(makeMoments(), "live")).toBe("08:10:00, live");
    const long = makeMoments({ newest_ns: ns + 600e9 + 1140e9 });
    expect(endWords(long, "live")).toBe("08:10:00 ┆ 19 min not on the track ┆ live");
    expect(gapsOf(long).at(-1)).toEqual({ from: placeAt(minutesOf(long), FROM + 600_000), to: 1 });
    expect(momentAt(minutesOf(long), 600)).toBe(FROM + 600_000);
  });

  it("name what came after them", () => {
    const after = [mark("act", FROM + 700_000, "admin acknowledged"), mark("act", FROM + 800_000, "admin commented")];
    expect(laterWords(makeMoments({ after, later: 4 }))).toBe("4 later: admin acknowledged, admin commented, …");
    expect(laterWords(makeMoments({ after: after.slice(1), later: 1 }))).toBe("1 later: admin commented");
    expect(laterWords(makeMoments())).toBe("");
  });

  it("never end after what is known", () => {
    expect(minutesOf(makeMoments({ newest_ns: FROM * 1e6 + 100e9 })).steps).toBe(100);
    expect(minutesOf(makeMoments({ newest_ns: 0 })).steps).toBe(1);
  });

  it("show where nothing is stored", () => {
    const ns = FROM * 1e6;
    const gaps = gapsOf(makeMoments({ held: [{ from_ns: ns + 60e9, to_ns: ns + 600e9 }] }));
    expect(gaps).toHaveLength(1);
    expect(gaps[0].from).toBe(0);
    expect(gaps[0].to).toBeCloseTo(60 / 618);
    expect(gapsOf(makeMoments())).toEqual([]);
    expect(gapsOf(makeMoments({ held: [] }))).toHaveLength(1);
  });

  it("lead from moment to moment, from the newest to the last", () => {
    const moments = [mark("began", FROM + 1000, "the fault began"), mark("trigger", FROM + 9000, "triggered")];
    expect(momentBeside(moments, null, -1)?.word).toBe("triggered");
    expect(momentBeside(moments, FROM + 9000, -1)?.word).toBe("the fault began");
    expect(momentBeside(moments, FROM + 1000, -1)).toBeNull();
    expect(momentBeside(moments, FROM, 1)?.word).toBe("the fault began");
    expect(momentBeside(moments, null, 1)).toBeNull();
    expect(whole(moments[0])).toBe(FROM + 1000);
  });

  it("say how far a moment is from the fault, as long as that is near", () => {
    const moments = [mark("symptom", FROM + 60_000, "first symptom")];
    expect(nearWords(FROM + 62_400, moments)).toBe("2.4 s after first symptom");
    expect(nearWords(FROM + 50_000, moments)).toBe("10 s before first symptom");
    expect(nearWords(FROM + 60_000, moments)).toBe("first symptom");
    expect(nearWords(FROM + 300_000, moments)).toBe("");
  });
});

describe("dragging", () => {
  let asked: number[] = [];
  let answers: (() => void)[] = [];
  let fails: string | null = null;
  let isSettled = true;
  const answerNext = async () => {
    await vi.advanceTimersByTimeAsync(100);
    answers.shift()?.();
    await vi.advanceTimersByTimeAsync(0);
  };

  beforeEach(() => {
    [asked, answers, fails, isSettled] = [[], [], null, true];
    vi.useFakeTimers();
    vi.stubGlobal("fetch", (url: string) => {
      if (url.endsWith("/moments")) return Promise.resolve(Response.json(makeMoments()));
      const ms = Number(new URL(url, "http://here").searchParams.get("at_ns")?.slice(0, -6));
      asked.push(ms);
      return new Promise((settle) => {
        const failure = () => Response.json({ error: fails, code: "bad_act" }, { status: 400 });
        answers.push(() => settle(fails ? failure() : new Response(bytesOf(ms, 0, 8, isSettled))));
      });
    });
  });

  afterEach(() => {
    vi.unstubAllGlobals();
    vi.useRealTimers();
  });

  it("asks one question at a time, and the newest wish next", async () => {
    const scrub = new Scrub("incidents/12");
    for (let second = 1; second <= 50; second++) scrub.show(FROM + second * 1000);
    await vi.advanceTimersByTimeAsync(0);
    expect(asked).toEqual([FROM + 1000]);
    await answerNext();
    expect(scrub.past.value?.atMs).toBe(FROM + 1000);
    await vi.advanceTimersByTimeAsync(100);
    expect(asked).toEqual([FROM + 1000, FROM + 50_000]);
    await answerNext();
    expect(scrub.past.value?.atMs).toBe(FROM + 50_000);
  });

  it("asks no more than ten times a second", async () => {
    const scrub = new Scrub("incidents/12");
    for (let tenth = 0; tenth < 100; tenth++) {
      scrub.show(FROM + tenth * 1000);
      await vi.advanceTimersByTimeAsync(10);
      answers.shift()?.();
      await vi.advanceTimersByTimeAsync(0);
    }
    expect(asked.length).toBeGreaterThan(8);
    expect(asked.length).toBeLessThanOrEqual(11);
    expect(asked).toEqual(asked.toSorted());
  });

  it("keeps the older picture until the next is there", async () => {
    const scrub = new Scrub("incidents/12");
    scrub.show(FROM);
    await answerNext();
    scrub.show(FROM + 30_000);
    await vi.advanceTimersByTimeAsync(0);
    expect(scrub.past.value?.atMs).toBe(FROM);
  });

  it("shows no answer that comes when the newest is wanted again", async () => {
    const scrub = new Scrub("incidents/12");
    scrub.show(FROM);
    scrub.show(null);
    await answerNext();
    expect(scrub.past.value).toBeNull();
    expect(asked).toHaveLength(1);
  });

  it("reads the neighbours ahead, which are then there at once", async () => {
    const scrub = new Scrub("incidents/12");
    await scrub.readMoments();
    scrub.show(FROM + 10_000);
    for (let n = 0; n < 5; n++) await answerNext();
    expect(asked.map((ms) => (ms - FROM) / 1000)).toEqual([10, 11, 12, 9, 13]);
    scrub.show(FROM + 11_000);
    await vi.advanceTimersByTimeAsync(0);
    expect(scrub.past.value?.atMs).toBe(FROM + 11_000);
    expect(asked.filter((ms) => ms === FROM + 11_000)).toHaveLength(1);
  });

  it("reads nothing ahead of which nothing can be known", async () => {
    const scrub = new Scrub("incidents/12");
    await scrub.readMoments();
    scrub.show(FROM + 600_000);
    for (let n = 0; n < 5; n++) await answerNext();
    expect(Math.max(...asked)).toBe(FROM + 600_000);
  });

  it("says why a moment cannot be shown, and shows no other in its place", async () => {
    const scrub = new Scrub("incidents/12");
    scrub.show(FROM);
    await answerNext();
    fails = "That time is not known yet.";
    scrub.show(FROM + 30_000);
    for (let n = 0; n < 3; n++) await answerNext();
    expect(scrub.failure.value).toBe("That time is not known yet.");
    expect(scrub.past.value).toBeNull();
    fails = null;
    scrub.show(FROM + 20_000);
    await answerNext();
    expect(scrub.failure.value).toBeNull();
    expect(scrub.past.value?.atMs).toBe(FROM + 20_000);
  });

  it("asks again for what data still on its way may change, and not for the rest", async () => {
    const scrub = new Scrub("incidents/12");
    const stop = scrub.follow();
    await vi.advanceTimersByTimeAsync(0);
    isSettled = false;
    scrub.show(FROM + 600_000);
    while (answers.length > 0) await answerNext();
    const before = asked.filter((ms) => ms === FROM + 600_000).length;
    isSettled = true;
    await vi.advanceTimersByTimeAsync(5100);
    while (answers.length > 0) await answerNext();
    expect(asked.filter((ms) => ms === FROM + 600_000)).toHaveLength(before + 1);
    await vi.advanceTimersByTimeAsync(20_000);
    expect(asked.filter((ms) => ms === FROM + 600_000)).toHaveLength(before + 1);
    stop();
  });

  it("moves no minutes under the hand", async () => {
    const scrub = new Scrub("incidents/12");
    scrub.hold(true);
    await scrub.readMoments();
    expect(scrub.moments.value).toBeNull();
    scrub.hold(false);
    await scrub.readMoments();
    expect(scrub.moments.value).not.toBeNull();
  });

  it("asks anew when another diagnosis blames", async () => {
    const scrub = new Scrub("incidents/12");
    scrub.blameAsBy(1);
    scrub.show(FROM);
    await answerNext();
    const shown: Past | null = scrub.past.value;
    scrub.blameAsBy(2);
    while (answers.length > 0) await answerNext();
    expect(asked.filter((ms) => ms === FROM)).toHaveLength(2);
    expect(scrub.past.value).not.toBe(shown);
  });
});
