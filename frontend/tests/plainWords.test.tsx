/* What a tired reader must not mistake: old entries, the newest beside the past, a picture's length, until when, whose it is. */

import { render } from "preact";
import { act } from "preact/test-utils";
import { expect, it, vi } from "vitest";
import { Actions } from "../src/incident/Actions";
import { ActivityTab, carried } from "../src/incident/ActivityTab";
import { EvidenceTable } from "../src/incident/EvidenceTable";
import { WaitPath } from "../src/incident/WaitPath";
import { stuckWords } from "../src/lanes/LaneBox";
import type { TimelineRow } from "../src/live/rows";
import { Until } from "../src/parts/bits";
import { session } from "../src/state/team";
import type { Diagnosis, Evidence } from "../src/types";
import { box } from "./box";
import { makeDiagnosis, makeIncident } from "./fixtures";

const entry = (id: number, note: string): TimelineRow => ({
  id,
  incident: 1,
  at: "2026-11-23T13:00:00Z",
  actor: "rita",
  actor_kind: "user",
  verb: "commented",
  before: "",
  after: "",
  note,
});
const tab = (timeline: TimelineRow[], older: number) => (
  <ActivityTab row={makeIncident()} timeline={timeline} older={older} mayComment isAsked={false} onFocused={() => {}} />
);
const button = (word: string) => [...box.querySelectorAll("button")].find((one) => one.textContent?.includes(word));

it("says how many entries are older and shows them when asked", async () => {
  const asked: string[] = [];
  const answers = vi.fn((path: string) => {
    asked.push(String(path));
    const body = String(path).includes("timeline_before")
      ? { timeline: [entry(6, "before it")], timeline_left_out: 5 }
      : { tickets: [] };
    return Promise.resolve(new Response(JSON.stringify(body), { status: 200 }));
  });
  vi.stubGlobal("fetch", answers);
  await act(async () => render(tab([entry(7, "newest")], 6), box));
  expect(box.textContent).toContain("6 older entries are not shown.");
  await act(async () => button("Show older")?.click());
  for (let n = 0; n < 5; n++) await act(async () => await new Promise((done) => setTimeout(done)));
  expect(asked.some((path) => path.endsWith("timeline_before=7"))).toBe(true);
  const notes = [...box.querySelectorAll(".timeline .note")].map((note) => note.textContent);
  expect(notes).toEqual(["before it", "newest"]);
  expect(box.textContent).toContain("5 older entries are not shown.");
});

it("keeps what lies between older entries and a newer snapshot, and begins anew where that is not known", () => {
  const rows = (...ids: number[]) => ids.map((id) => entry(id, String(id)));
  const ids = (found: ReturnType<typeof carried>) => found?.entries.map((one) => one.id);
  const read = { entries: rows(1, 2), left: 9 };
  expect(ids(carried(read, rows(3, 4), rows(3, 4, 5)))).toEqual([1, 2]);
  expect(carried(read, rows(3, 4, 5, 6), rows(5, 6))).toEqual({ entries: rows(1, 2, 3, 4), left: 9 });
  expect(carried(read, rows(3, 4), rows(6, 7))).toBe(null);
  expect(carried(null, rows(3, 4), rows(4, 5))).toBe(null);
  expect(carried(read, rows(3, 4), [{ ...entry(4, "4"), incident: 2 }])).toBe(null);
});

it("shows entries that were read once more though a newer snapshot begins later", async () => {
  const body = { timeline: [entry(2, "two")], timeline_left_out: 0, tickets: [] };
  vi.stubGlobal("fetch", () => Promise.resolve(new Response(JSON.stringify(body), { status: 200 })));
  const notes = () => [...box.querySelectorAll(".timeline .note")].map((note) => note.textContent);
  await act(async () => render(tab([entry(3, "three"), entry(4, "four")], 1), box));
  await act(async () => button("Show older")?.click());
  await vi.waitFor(async () => {
    await act(async () => {});
    expect(notes()).toEqual(["two", "three", "four"]);
  });
  await act(async () => render(tab([entry(4, "four"), entry(5, "five")], 2), box));
  expect(notes()).toEqual(["two", "three", "four", "five"]);
});

it("brings one's own comment into sight once it was taken, and nobody else's when it was refused", async () => {
  const seen = vi.fn();
  vi.stubGlobal("fetch", (path: string) =>
    Promise.resolve(
      String(path).includes("comments")
        ? new Response(JSON.stringify({ code: "x", message: "no" }), { status: 400 })
        : new Response(JSON.stringify({ tickets: [] }), { status: 200 }),
    ),
  );
  const isOwn = Element.prototype.scrollIntoView;
  Element.prototype.scrollIntoView = seen;
  await act(async () => render(tab([entry(7, "newest")], 0), box));
  const field = box.querySelector("textarea") as HTMLTextAreaElement;
  await act(async () => {
    field.value = "mine";
    field.dispatchEvent(new Event("input", { bubbles: true }));
  });
  const send = () =>
    act(async () => void box.querySelector("form")?.dispatchEvent(new Event("submit", { bubbles: true })));
  await send();
  await vi.waitFor(async () => {
    await act(async () => {});
    expect(button("Comment")?.disabled).toBe(false);
  });
  await act(async () => render(tab([entry(7, "newest"), entry(8, "somebody's")], 0), box));
  expect(seen).not.toHaveBeenCalled();
  Element.prototype.scrollIntoView = isOwn;
});

it("says that the path is the newest while the other pictures show an earlier moment", () => {
  const diagnosis = makeDiagnosis() as Diagnosis;
  const path = (pin: number | null) => (
    <WaitPath diagnosis={diagnosis} culprits={diagnosis.findings[0].culprits} nodeOf={() => "node-1"} pin={pin} />
  );
  act(() => render(path(Date.parse("2026-11-23T09:47:00Z")), box));
  expect(box.textContent).toContain("newest, not 09:47:00 UTC");
  act(() => render(path(null), box));
  expect(box.textContent).not.toContain("newest, not");
});

it("calls a flow stuck for more than is drawn where more is known than is drawn", () => {
  expect(stuckWords(49_900, true)).toBe("> 49 s");
  expect(stuckWords(49_900, false)).toBe("49.9 s");
});

it("says until when by the clock, with the day where that is another", () => {
  const soon = new Date(Date.now() + 3_600_000).toISOString();
  act(() => render(<Until at={soon} />, box));
  expect(box.textContent).toBe(`until ${soon.slice(11, 16)} UTC`);
  const far = new Date(Date.now() + 72 * 3_600_000).toISOString();
  act(() => render(<Until at={far} />, box));
  expect(box.textContent).toMatch(/^until \d+ \w+/);
});

it("calls a NIC's counter a total, and nothing else one", () => {
  const rows = [
    { what: "nic0 rx_bytes", value: 364_246_529, unit: "bytes", source: "nic", rank: 2 },
    { what: "sent of the op", value: 12, unit: "bytes", source: "flow", rank: 2 },
  ];
  act(() => render(<EvidenceTable rows={rows as Evidence[]} caption="c" />, box));
  const values = [...box.querySelectorAll("tbody tr")].map((line) => line.textContent ?? "");
  expect(values[0]).toContain("bytes in all");
  expect(values[1]).not.toContain("in all");
});

it("offers nobody what they have already", () => {
  session.value = { ...(session.value as NonNullable<typeof session.value>), user: "rita", name: "Rita" };
  const actions = (changes: object) => (
    <Actions
      row={{ ...makeIncident(), ...changes }}
      may={["assign"]}
      assignable={["rita"]}
      review={null}
      onActed={() => {}}
      onComment={() => {}}
    />
  );
  const offered = (changes: object) => {
    act(() => render(actions(changes), box));
    return button("Assign to me") !== undefined;
  };
  expect(offered({ state: "open", assignee: null })).toBe(true);
  expect(offered({ state: "acknowledged", acknowledged_by: "rita", assignee: null })).toBe(false);
  expect(offered({ state: "acknowledged", acknowledged_by: "rita", assignee: "omar" })).toBe(true);
  expect(offered({ state: "open", assignee: "rita" })).toBe(false);
  session.value = null;
});
