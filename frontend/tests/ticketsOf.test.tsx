/* An incident's tickets: what they became elsewhere is said, what nobody knows is said too, and a close there offers an act. */

import { render } from "preact";
import { act } from "preact/test-utils";
import { afterEach, expect, it, vi } from "vitest";
import type { IncidentRow } from "../src/live/rows";
import { offered } from "../src/state/offered";
import { standsThere, type TicketRow } from "../src/tickets/calls";
import { TicketsOf } from "../src/tickets/TicketsOf";

const TICKET: TicketRow = {
  ...{ destination: 1, destination_name: "ops board", kind: "jira", external_id: "OPS-7" },
  ...{
    url: "https://jira.example/browse/OPS-7",
    told_at: "2026-01-01T00:00:00Z",
    untold_why: "",
    remote_state: "open",
  },
  ...{ remote_word: "In Progress", remote_assignee: "Jo Ng", remote_at: "2026-01-01T00:01:00Z" },
  ...{ seen_at: "2026-01-01T00:02:00Z", unknown_since: null, unknown_why: "", differs: false },
};
const INCIDENT = { number: 12, version: 3, condition: "firing", state: "acknowledged" } as IncidentRow;

async function shown(ticket: TicketRow): Promise<HTMLElement> {
  const said = () => Promise.resolve(new Response(JSON.stringify({ tickets: [ticket] })));
  vi.stubGlobal("fetch", vi.fn(said));
  const root = document.createElement("div");
  await act(async () => render(<TicketsOf row={INCIDENT} />, root));
  await vi.waitFor(() => expect(root.querySelector("li")).not.toBeNull());
  return root;
}

afterEach(() => {
  vi.unstubAllGlobals();
  offered.value = [];
});

it("says how a ticket stands there, whose it is, and when it was seen", async () => {
  const root = await shown(TICKET);
  expect(root.textContent).toContain("ops board OPS-7");
  expect(root.textContent).toContain("open there (In Progress)");
  expect(root.textContent).toContain("Jo Ng");
  expect(root.textContent).toContain("seen");
  expect(root.textContent).not.toContain("unknown since");
});

it("says why it has not been told of", async () => {
  const root = await shown({ ...TICKET, url: "", told_at: null, untold_why: "3 tries so far: answered 503" });
  expect(root.querySelector("li")?.textContent).toContain("not told yet: 3 tries so far: answered 503");
});

it("says since when nobody knows, and why", async () => {
  const failed = { unknown_since: "2026-01-01T00:02:00Z", unknown_why: "answered 503" };
  const root = await shown({ ...TICKET, ...failed });
  expect(root.querySelector(".unknown-since")?.textContent).toMatch(/unknown since .*: answered 503/);
});

it("says that a close there resolves nothing and offers the act to who may", async () => {
  const closed = { ...TICKET, remote_state: "closed", remote_word: "Done", differs: true };
  const looked = await shown(closed);
  expect(looked.textContent).toContain("it still fires here");
  expect(looked.querySelector("button")).toBeNull();
  const run = vi.fn();
  offered.value = [{ word: "Resolve …", hint: "r", run }];
  const root = await shown(closed);
  root.querySelector("button")?.click();
  expect(run).toHaveBeenCalledOnce();
});

it("words what became of it", () => {
  expect(standsThere({ ...TICKET, remote_word: "open" })).toBe("open there");
  expect(standsThere({ ...TICKET, remote_state: "gone", remote_word: "answered 404" })).toMatch("not to be seen");
  expect(standsThere({ ...TICKET, remote_state: "" })).toBe("");
});
