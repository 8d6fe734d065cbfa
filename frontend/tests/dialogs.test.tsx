/* A dialog stays open with what was typed in it, and says why, until the server has taken it. */

import { render } from "preact";
import { act } from "preact/test-utils";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { Actions, TakeBackDialog } from "../src/incident/Actions";
import { HandlingDialog } from "../src/incident/HandlingDialogs";
import type { IncidentRow } from "../src/live/rows";
import { JobActs } from "../src/pages/JobActs";
import { ReasonDialog } from "../src/parts/Dialog";
import { SilenceDialog } from "../src/silences/SilenceDialog";
import { notices } from "../src/state/notices";
import { makeIncident, makeJob } from "./fixtures";

const NOTHING = () => undefined;
const PAST = "That beginning lies in the past: leave it out for a silence that begins now.";

/** What is written, and how it is answered, by the end of the address. */
let sent: { path: string; body: Record<string, unknown> }[] = [];
let answer: () => Response | Promise<Response>;

const refuse = (error: string, status = 400) => new Response(JSON.stringify({ error, code: "bad" }), { status });
const button = (word: string) =>
  [...document.querySelectorAll<HTMLButtonElement>("dialog button")].find((one) => one.textContent === word);
const press = (word: string) => act(() => button(word)?.click());
const alertWords = () => document.querySelector("dialog [role=alert]")?.textContent ?? "";
const said = () => vi.waitFor(() => expect(alertWords()).not.toBe(""));

function type(selector: string, text: string): void {
  act(() => {
    const field = document.querySelector(selector) as HTMLInputElement;
    field.value = text;
    field.dispatchEvent(new Event("input", { bubbles: true }));
  });
}

function stay(selector: string): HTMLInputElement {
  return document.querySelector(selector) as HTMLInputElement;
}

beforeEach(() => {
  sent = [];
  notices.value = [];
  vi.stubGlobal("fetch", async (address: string, how: RequestInit) => {
    if (how.method === "GET" || !how.method || address.endsWith("/preview")) return new Promise(NOTHING);
    sent.push({ path: address.replace("/api/v1/", ""), body: how.body ? JSON.parse(String(how.body)) : {} });
    return answer();
  });
});

afterEach(() => {
  act(() => render(null, document.body));
  vi.unstubAllGlobals();
});

it("a silence whose beginning is over is the server's to refuse, at its field", async () => {
  answer = () => refuse(PAST);
  const onClose = vi.fn();
  act(() => render(<SilenceDialog row={makeIncident()} onClose={onClose} />, document.body));
  type("#silence-begins", "1999-12-31T23:00");
  type("#silence-reason", "known trouble");
  press("Silence");
  await said();
  expect(sent.map(({ path }) => path)).toEqual(["silences"]);
  expect(String(sent[0].body.starts_at)).toMatch(/^(1999|2000)-/);
  expect(alertWords()).toBe(PAST);
  expect(stay("#silence-begins").getAttribute("aria-describedby")).toBe(
    document.querySelector("dialog [role=alert]")?.id,
  );
  expect(stay("#silence-reason").value).toBe("known trouble");
  expect([onClose.mock.calls.length, button("Silence")?.disabled]).toEqual([0, false]);
});

it("a review that is refused stays, and can be sent again", async () => {
  answer = () => refuse("It has no rank 99.");
  const onClose = vi.fn();
  const row = makeIncident({ state: "resolved" });
  const props = { row, assignable: [], review: null, onClose, onActed: NOTHING };
  act(() => render(<HandlingDialog question="review" {...props} />, document.body));
  act(() => document.querySelector<HTMLInputElement>("input[name=alarm]")?.click());
  act(() => document.querySelector<HTMLInputElement>("input[name=verdict]")?.click());
  type("#cause", "a cable, after an hour's search");
  press("Save");
  await said();
  expect([alertWords(), stay("#cause").value]).toEqual(["It has no rank 99.", "a cable, after an hour's search"]);
  expect([onClose.mock.calls.length, button("Save")?.disabled, notices.value]).toEqual([0, false, []]);
  answer = () => new Response(JSON.stringify({ incident: row, entry: null }));
  press("Save");
  await vi.waitFor(() => expect(onClose).toHaveBeenCalledTimes(1));
  expect(sent).toHaveLength(2);
});

it("a reason to resolve stays while the server is away", async () => {
  answer = () => Promise.reject(new TypeError("Failed to fetch"));
  const props = { may: ["review"], assignable: [], review: null, onActed: NOTHING, onComment: NOTHING };
  act(() => render(<Actions row={makeIncident({ state: "open" })} {...props} />, document.body));
  const resolve = [...document.querySelectorAll("button")].find((one) => one.textContent?.startsWith("Resolve"));
  act(() => resolve?.click());
  type("#reason", "drained node 3");
  press("Resolve");
  await said();
  expect(alertWords()).toContain("The server cannot be reached.");
  expect([stay("#reason").value, button("Resolve")?.disabled]).toEqual(["drained node 3", false]);
});

it("a report of a job stays, and says why it was refused where it was typed", async () => {
  answer = () => refuse("The database does not answer.", 503);
  const props = { job: makeJob(), may: ["trigger"], pause: null, wanted: null, onActed: NOTHING };
  act(() => render(<JobActs {...props} />, document.body));
  act(() => document.querySelector<HTMLButtonElement>(".job-acts button")?.click());
  type("#report-note", "loss is flat");
  press("Report");
  await said();
  expect([alertWords(), stay("#report-note").value]).toEqual(["The database does not answer.", "loss is flat"]);
});

it("attaching to what is resolved says that, and not who moved this one first", async () => {
  const row = makeIncident({ number: 3 });
  const said7 = { error: "Incident 7 is resolved: nothing can be attached to it.", code: "illegal_move" };
  const root = makeIncident({ number: 7, state: "resolved" });
  answer = () => new Response(JSON.stringify({ ...said7, incident: root }), { status: 409 });
  const props = { row, assignable: [], review: null, onClose: NOTHING, onActed: NOTHING };
  act(() => render(<HandlingDialog question="attach" {...props} />, document.body));
  type("#root", "7");
  press("Attach");
  await said();
  expect(alertWords()).toBe(said7.error);
});

it("reopening beside an open one says which that is, and not who resolved this one", async () => {
  const error = "Incident 3 cannot be reopened while incident 7 of the same attempt is open.";
  const other = makeIncident({ number: 7 });
  answer = () => new Response(JSON.stringify({ error, code: "illegal_move", incident: other }), { status: 409 });
  const props = { may: ["review"], assignable: [], review: null, onActed: NOTHING, onComment: NOTHING };
  const row = makeIncident({ number: 3, state: "resolved" });
  act(() => render(<Actions row={row} {...props} />, document.body));
  const reopen = [...document.querySelectorAll("button")].find((one) => one.textContent?.startsWith("Reopen"));
  act(() => reopen?.click());
  press("Reopen");
  await said();
  expect(alertWords()).toBe(error);
});

it("a refusal that comes after the dialog was left is a notice", async () => {
  let late: (answer: Response) => void = NOTHING;
  answer = () => new Promise((resolve) => (late = resolve));
  const row = makeIncident();
  const props = { row, assignable: ["bea"], review: null, onClose: NOTHING, onActed: NOTHING };
  act(() => render(<HandlingDialog question="attach" {...props} />, document.body));
  type("#root", "7");
  press("Attach");
  await vi.waitFor(() => expect(sent).toHaveLength(1));
  act(() => render(null, document.body));
  late(refuse("There is no incident 7."));
  await vi.waitFor(() => expect(notices.value.map(({ text }) => text)).toEqual(["There is no incident 7."]));
});

it("taking it from somebody notices that nobody has it any more", () => {
  const show = (row: IncidentRow) =>
    act(() => render(<TakeBackDialog row={row} onClose={NOTHING} onSay={async () => undefined} />, document.body));
  const title = () => document.querySelector("#dialog-title")?.textContent;
  show(makeIncident({ number: 1, state: "acknowledged", acknowledged_by: "admin" }));
  expect(title()).toBe("admin has incident 1");
  show(makeIncident({ number: 1, state: "open", acknowledged_by: null, acknowledged_at: null }));
  expect(title()).toBe("Nobody has incident 1 any more");
  expect(document.body.textContent).not.toMatch(/null|Leave it to/);
  show(makeIncident({ number: 1, state: "resolved", acknowledged_by: "admin" }));
  expect(title()).toBe("Incident 1 is resolved");
});

it("says of a reason of blanks that it is none, until something is typed", async () => {
  const said = vi.fn(async () => undefined);
  act(() =>
    render(
      <ReasonDialog title="Resolve" hint="Why?" required action="Resolve" onClose={NOTHING} onSay={said} />,
      document.body,
    ),
  );
  const field = document.querySelector("textarea") as HTMLTextAreaElement;
  field.value = "   ";
  act(() => void document.querySelector("form")?.dispatchEvent(new Event("submit", { cancelable: true })));
  expect(field.validationMessage).toContain("blanks");
  field.value = "swapped";
  act(() => void field.dispatchEvent(new Event("input", { bubbles: true })));
  expect(field.validationMessage).toBe("");
  act(() => void document.querySelector("form")?.dispatchEvent(new Event("submit", { cancelable: true })));
  await vi.waitFor(() => expect(said).toHaveBeenCalledWith("swapped"));
});

it("is open before the next key arrives, which is meant for it", () => {
  render(
    <ReasonDialog title="Resolve" hint="Why?" required action="Resolve" onClose={NOTHING} onSay={async () => {}} />,
    document.body,
  );
  expect(document.querySelector("dialog")?.open).toBe(true);
});
