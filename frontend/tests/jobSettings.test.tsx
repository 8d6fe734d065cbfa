/* The settings page of a job: a colleague's change made meanwhile is shown beside one's own, and nothing is overwritten. */

import { render } from "preact";
import { act } from "preact/test-utils";
import { afterEach, expect, it, vi } from "vitest";
import { JobSettingsPage } from "../src/pages/JobSettingsPage";
import type { JobSettings } from "../src/types";

const settings = (value: number, version: number): JobSettings => ({
  ...{
    version,
    job_id: 1,
    job: "llama",
    team: "training",
    may: ["configure"],
    overridden: [],
    ignored: [],
    history: [],
  },
  settings: [
    {
      ...{
        name: "delta_max_s",
        group: "failure",
        unit: "s",
        about: "Longest Δ",
        value,
        default: 10,
        low: 1,
        high: 600,
      },
      ...{ whole: false, overridden: value !== 10, changed_at: null, changed_by: null, reason: null },
    },
  ],
});
const overtaken = {
  ...{ name: "delta_max_s", unit: "s", theirs: 30, yours: 20, changed_by: "ada" },
  ...{ changed_at: "2026-01-01T00:00:00Z", reason: "long ops" },
};

afterEach(() => {
  act(() => render(null, document.body));
  vi.unstubAllGlobals();
});

async function settle(): Promise<void> {
  await act(async () => {
    for (let n = 0; n < 5; n++) await new Promise((done) => setTimeout(done, 0));
  });
}

function type(selector: string, text: string): void {
  const field = document.querySelector<HTMLInputElement>(selector);
  if (!field) throw new Error(`no ${selector}`);
  field.value = text;
  act(() => void field.dispatchEvent(new Event("input", { bubbles: true })));
}

it("shows who was faster, keeps what was typed, and sends it again with what it has seen by now", async () => {
  const sent: { version: number }[] = [];
  vi.stubGlobal("fetch", async (_: string, { method, body }: RequestInit) => {
    if (method === "GET" || method === undefined) return Response.json(settings(10, 3));
    sent.push(JSON.parse(String(body)));
    if (sent.length > 1) return Response.json(settings(20, 5));
    const conflict = { error: "Meanwhile …", code: "stale_version", overtaken: [overtaken], settings: settings(30, 4) };
    return Response.json(conflict, { status: 409 });
  });
  act(() => render(<JobSettingsPage id={1} />, document.body));
  await settle();
  type('input[aria-label="delta_max_s, s"]', "20");
  expect(document.querySelector(".missing")?.textContent).toBe("Still missing: why");
  type("#settings-reason", "flapping");
  expect(document.querySelector(".missing")).toBeNull();
  const save = () =>
    document.querySelector("form")?.dispatchEvent(new Event("submit", { bubbles: true, cancelable: true }));
  save();
  await settle();
  expect(document.body.textContent).toContain(
    "ada set delta_max_s to 30 s (“long ops”) while you were editing; you want 20 s",
  );
  expect(document.body.textContent).toContain("delta_max_s: 30 s → 20 s");
  save();
  await settle();
  expect(sent.map(({ version }) => version)).toEqual([3, 4]);
  expect(document.querySelector("form")).toBeNull();
});

it("opens what is looked for, hides the rest, and says how many there are", async () => {
  const one = settings(10, 3).settings[0];
  const named = (name: string, group: string, about: string) => ({ ...one, name, group, about }) as typeof one;
  const many = [
    named("delta_max_s", "failure", "Longest Δ"),
    named("share_min", "rules", "Least share of a slow NIC"),
    named("ratio_min", "rules", "Least ratio"),
  ];
  vi.stubGlobal("fetch", async () => Response.json({ ...settings(10, 3), settings: many }));
  vi.stubGlobal("innerWidth", 390);
  act(() => render(<JobSettingsPage id={1} />, document.body));
  await settle();
  const groups = () => [...document.querySelectorAll("details")].map((group) => group.open);
  expect(groups()).toEqual([false, false]);
  expect(document.body.textContent).toContain("2 settings");
  type(".setting-find input", "slow NIC");
  expect(groups()).toEqual([true]);
  expect(document.querySelector('[role="status"]')?.textContent).toBe("1 of 3 settings");
  expect(document.querySelectorAll("tbody tr")).toHaveLength(1);
  type(".setting-find input", "zzz");
  expect(document.body.textContent).toContain("No setting has these words.");
  type(".setting-find input", "");
  expect(groups()).toEqual([false, false]);
});
