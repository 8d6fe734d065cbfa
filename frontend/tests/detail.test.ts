/* The pictures of an incident: shown one by one, and a slow server is not asked again before it has answered. */

import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { IncidentDetail, tileOf } from "../src/incident/detail";
import { makeGrid, makeIncident, makeLanes, SECOND } from "./fixtures";

let asked: string[] = [];
let lanes = makeLanes();
let answerLanes: () => void = () => undefined;

function packed() {
  const { note, ...columns } = makeGrid(8, 2);
  const numbered = { texts: note, at: note.map((_, place) => place) };
  return { ...columns, note: numbered, stream: { name: "topology:12", epoch: "7", offset: 0 } };
}

beforeEach(() => {
  asked = [];
  lanes = makeLanes();
  vi.useFakeTimers();
  vi.stubGlobal("fetch", (url: string) => {
    asked.push(url.replace("/api/v1/incidents/12", ""));
    if (url.endsWith("/moments")) return Promise.reject(new Error("away"));
    if (url.endsWith("/topology")) return Promise.resolve(Response.json(packed()));
    if (!url.includes("/lanes")) return Promise.reject(new Error("away"));
    return new Promise((settle) => {
      answerLanes = () => settle(Response.json(lanes));
    });
  });
});

afterEach(() => {
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

const lanesAsked = () => asked.filter((path) => path.startsWith("/lanes"));

it("shows the grid while the lanes are on their way, and asks again only after they came", async () => {
  const detail = new IncidentDetail(12);
  const stop = detail.follow(null);
  await vi.advanceTimersByTimeAsync(20_000);
  expect(detail.grid.value?.rank).toHaveLength(8);
  expect(detail.lanes.value).toBeNull();
  expect(lanesAsked()).toEqual(["/lanes"]);
  answerLanes();
  await vi.advanceTimersByTimeAsync(5000);
  expect(detail.lanes.value).not.toBeNull();
  expect(lanesAsked()).toHaveLength(2);
  stop();
});

it("asks for another rank's lanes at once", async () => {
  const detail = new IncidentDetail(12);
  const stop = detail.follow(null);
  detail.showRank(5);
  await vi.advanceTimersByTimeAsync(100);
  expect(lanesAsked()).toEqual(["/lanes", "/lanes?ranks=5"]);
  stop();
});

it("asks no more for lanes that have come whole, until the machine finds something or another rank is chosen", async () => {
  lanes = { ...makeLanes(), to_ns: 60 * SECOND };
  const detail = new IncidentDetail(12);
  const stop = detail.follow(null);
  const answeredAfter = async (ms: number) => {
    await vi.advanceTimersByTimeAsync(ms);
    answerLanes();
    await vi.advanceTimersByTimeAsync(0);
  };
  for (let n = 0; n < 6; n++) await answeredAfter(5000);
  expect(lanesAsked()).toEqual(["/lanes", "/lanes"]);
  expect(asked.filter((path) => path === "/topology").length).toBeGreaterThan(4);
  detail.hear(makeIncident());
  await answeredAfter(1500);
  expect(lanesAsked()).toHaveLength(3);
  for (let n = 0; n < 2; n++) await answeredAfter(5000);
  const before = lanesAsked().length;
  detail.hear(makeIncident({ state: "acknowledged", acknowledged_by: "rita", version: 9 }));
  detail.refreshMay();
  const answers = asked.filter((path) => path === "").length;
  await answeredAfter(1500);
  expect(asked.filter((path) => path === "")).toHaveLength(answers + 1);
  expect(lanesAsked()).toHaveLength(before);
  detail.hear(makeIncident({ headline: "NIC nic1 of node1 is down" }));
  await answeredAfter(1500);
  expect(lanesAsked()).toHaveLength(before + 1);
  detail.showRank(5);
  await answeredAfter(1000);
  expect(lanesAsked().at(-1)).toBe("/lanes?ranks=5");
  stop();
});

it("asks for pictures anew when a snapshot, and no message, brought what the machine found", async () => {
  let found = makeIncident();
  const others = fetch;
  vi.stubGlobal("fetch", (url: string) => {
    if (!url.endsWith("/incidents/12")) return others(url);
    const stream = { name: "incident:12", epoch: "e", offset: 3 };
    return Promise.resolve(Response.json({ incident: found, timeline: [], stream, diagnosis: null, diagnosis_id: 1 }));
  });
  lanes = { ...makeLanes(), to_ns: 60 * SECOND };
  const detail = new IncidentDetail(12);
  const stop = detail.follow(null);
  for (let n = 0; n < 6; n++) {
    answerLanes();
    await vi.advanceTimersByTimeAsync(5000);
  }
  const settled = lanesAsked().length;
  detail.refreshMay();
  await vi.advanceTimersByTimeAsync(5000);
  expect(lanesAsked()).toHaveLength(settled);
  found = makeIncident({ headline: "another verdict" });
  detail.refreshMay();
  await vi.advanceTimersByTimeAsync(5000);
  expect(lanesAsked()).toHaveLength(settled + 1);
  stop();
});

it("asks for flows that were left out, and for the newest minute, once each is wanted", async () => {
  lanes = { ...makeLanes(), to_ns: 60 * SECOND, newest_ns: 600 * SECOND };
  const detail = new IncidentDetail(12);
  const stop = detail.follow(null);
  await vi.advanceTimersByTimeAsync(100);
  answerLanes();
  await vi.advanceTimersByTimeAsync(0);
  detail.showMoreFlows();
  expect(lanesAsked().at(-1)).toBe("/lanes?limit=128");
  answerLanes();
  await vi.advanceTimersByTimeAsync(0);
  detail.showTime("newest");
  expect(lanesAsked().at(-1)).toBe(`/lanes?limit=128&from_ns=${550 * SECOND}`);
  detail.showTime("fault");
  expect(detail.lanesTime.value).toBe("fault");
  stop();
});

it("doubles the flows it asks for until the server gives no more", async () => {
  const detail = new IncidentDetail(12);
  for (const limit of [128, 256, 512, 1024]) {
    expect(detail.mayShowMoreFlows).toBe(true);
    detail.showMoreFlows();
    expect(detail.flowsAsked.value).toBe(limit);
  }
  expect(detail.mayShowMoreFlows).toBe(false);
});

it("puts the lanes and who stood still into the minute of a moment far from the fault, and back", async () => {
  const detail = new IncidentDetail(12);
  const stop = detail.follow(null);
  await vi.advanceTimersByTimeAsync(100);
  answerLanes();
  await vi.advanceTimersByTimeAsync(0);
  const moment = 1_800_000_100_000;
  detail.pinMoment(moment);
  const [from, to] = tileOf(moment);
  const minute = `?from_ns=${from}000000&to_ns=${to}000000`;
  expect(lanesAsked().at(-1)).toBe(`/lanes${minute}`);
  expect(asked).toContain(`/standing${minute}`);
  detail.pinMoment(moment + 2000);
  expect(lanesAsked()).toHaveLength(2);
  detail.pinMoment(null);
  expect(lanesAsked().at(-1)).toBe("/lanes");
  stop();
});

it("keeps the moment in the middle half of its minute", () => {
  for (let ms = 1_800_000_000_000; ms < 1_800_000_200_000; ms += 777) {
    const [from, to] = tileOf(ms);
    expect(to - from).toBe(60_000);
    expect(ms - from).toBeGreaterThanOrEqual(15_000);
    expect(to - ms).toBeGreaterThanOrEqual(15_000);
  }
});
