/* A half-written comment outlives a reload, is its incident's alone, and is gone once it was sent. */

import { render } from "preact";
import { act } from "preact/test-utils";
import { afterEach, expect, it, vi } from "vitest";
import { ActivityTab } from "../src/incident/ActivityTab";
import { isUnderWay } from "../src/state/actions";
import { makeIncident } from "./fixtures";

const NOTHING = () => undefined;
const field = () => document.querySelector("#comment") as HTMLTextAreaElement;

function open(number: number): void {
  const row = makeIncident({ number });
  act(() =>
    render(<ActivityTab row={row} timeline={[]} mayComment isAsked={false} onFocused={NOTHING} />, document.body),
  );
}

function leave(): void {
  act(() => render(null, document.body));
}

function type(text: string): void {
  act(() => {
    field().value = text;
    field().dispatchEvent(new Event("input", { bubbles: true }));
  });
}

afterEach(() => {
  leave();
  sessionStorage.clear();
  vi.unstubAllGlobals();
});

it("is there again after the page was left, and says that it is kept", () => {
  vi.stubGlobal(
    "fetch",
    vi.fn(() => new Promise(NOTHING)),
  );
  open(12);
  type("looked at nic1, wait");
  leave();
  open(12);
  expect(field().value).toBe("looked at nic1, wait");
  expect(document.body.textContent).toContain("kept in this tab until it is sent");
});

it("is never shown with another incident, though the page stays", () => {
  vi.stubGlobal(
    "fetch",
    vi.fn(() => new Promise(NOTHING)),
  );
  open(12);
  type("of twelve");
  open(13);
  expect(field().value).toBe("");
  type("of thirteen");
  open(12);
  expect(field().value).toBe("of twelve");
});

it("is gone once it was emptied", () => {
  vi.stubGlobal(
    "fetch",
    vi.fn(() => new Promise(NOTHING)),
  );
  open(12);
  type("x");
  type("");
  leave();
  open(12);
  expect([field().value, sessionStorage.length]).toEqual(["", 0]);
});

it("stays when it could not be sent, and is gone once it was", async () => {
  const taken = { incident: makeIncident({ number: 12 }), entry: null };
  const answers = [new Response("{}", { status: 503 }), new Response(JSON.stringify(taken))];
  vi.stubGlobal("fetch", (address: string) =>
    String(address).includes("/comments") ? Promise.resolve(answers.shift()) : new Promise(NOTHING),
  );
  const send = () => document.querySelector<HTMLButtonElement>("form.comment button")?.click();
  open(12);
  type("drained node3");
  send();
  await vi.waitFor(() => expect(answers).toHaveLength(1));
  await vi.waitFor(() => expect(isUnderWay(12, "comments")).toBe(false));
  expect(field().value).toBe("drained node3");
  send();
  await vi.waitFor(() => expect(field().value).toBe(""));
  expect(sessionStorage.length).toBe(0);
});
