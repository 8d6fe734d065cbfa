/* The pictures of an incident: shown one by one, and a slow server is not asked again before it has answered. */

import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { IncidentDetail } from "../src/incident/detail";
import { makeGrid, makeLanes, SECOND } from "./fixtures";

let asked: string[] = [];
let lanes = makeLanes();
let answerLanes: () => void = () => undefined;

beforeEach(() => {
  asked = [];
  lanes = makeLanes();
  vi.useFakeTimers();
  vi.stubGlobal("fetch", (url: string) => {
    asked.push(url.replace("/api/v1/incidents/12", ""));
    if (url.endsWith("/grid")) return Promise.resolve(Response.json(makeGrid(8, 2)));
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

it("asks no more for lanes that have come whole, until the incident changes or another rank is chosen", async () => {
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
  expect(asked.filter((path) => path === "/grid").length).toBeGreaterThan(4);
  detail.refreshMay();
  await answeredAfter(1000);
  expect(lanesAsked()).toHaveLength(3);
  detail.showRank(5);
  await answeredAfter(1000);
  expect(lanesAsked().at(-1)).toBe("/lanes?ranks=5");
  stop();
});

it("asks for flows that were left out, and for the newest minute, once each is wanted", async () => {
  lanes = { ...makeLanes(), to_ns: 60 * SECOND, newest_ns: 600 * SECOND };
  const detail = new IncidentDetail(12);
  const stop = detail.follow(null);
  await vi.advanceTimersByTimeAsync(100);
  answerLanes();
  await vi.advanceTimersByTimeAsync(0);
  detail.showAllFlows();
  expect(lanesAsked().at(-1)).toBe("/lanes?limit=1024");
  answerLanes();
  await vi.advanceTimersByTimeAsync(0);
  detail.showTime("newest");
  expect(lanesAsked().at(-1)).toBe(`/lanes?limit=1024&from_ns=${550 * SECOND}`);
  detail.showTime("fault");
  expect(detail.lanesTime.value).toBe("fault");
  stop();
});
