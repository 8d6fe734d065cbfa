/* Fields give the keyboard back, refusals name the field, addresses say what of them was ignored, old failures go. */

import { render } from "preact";
import { act } from "preact/test-utils";
import { afterEach, beforeAll, describe, expect, it } from "vitest";
import { fieldWords } from "../src/api";
import { ActivityTab } from "../src/incident/ActivityTab";
import { incidentOf } from "../src/pages/NowPage";
import { Ignored } from "../src/parts/Ignored";
import { go } from "../src/state/address";
import { startKeys, useKeys } from "../src/state/keys";
import { notices, notify, settle } from "../src/state/notices";
import { makeIncident, makeJob } from "./fixtures";

beforeAll(startKeys);

afterEach(() => {
  act(() => render(null, document.body));
  notices.value = [];
  go("/");
});

function press(key: string): void {
  const target = document.activeElement ?? document.body;
  act(() => {
    target.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
  });
}

describe("the comment box", () => {
  const pressed: string[] = [];
  function Page({ isAsked }: { isAsked: boolean }) {
    useKeys({ a: () => pressed.push("a") });
    return (
      <ActivityTab
        row={makeIncident()}
        timeline={[]}
        mayComment
        isAsked={isAsked}
        onFocused={() => pressed.push("got it")}
      />
    );
  }

  it("takes the focus once, and Escape gives the letters back to the page", () => {
    act(() => render(<Page isAsked />, document.body));
    expect(document.activeElement?.id).toBe("comment");
    expect(pressed).toEqual(["got it"]);
    press("a");
    expect(pressed).toEqual(["got it"]);
    press("Escape");
    expect(document.activeElement).toBe(document.body);
    press("a");
    expect(pressed).toEqual(["got it", "a"]);
  });

  it("is not focused when it comes back unasked", () => {
    act(() => render(<Page isAsked={false} />, document.body));
    expect(document.activeElement).toBe(document.body);
  });
});

it.each([
  [{ matchers: [{}, { values: { 0: ["Too long."] } }] }, "Matchers 2 values 0: Too long."],
  [{ matchers: [{ values: [["Too long."]] }] }, "Matchers 1 values 1: Too long."],
  [{ starts_at: ["Wrong format."] }, "Starts at: Wrong format."],
  [{ non_field_errors: ["Both are needed."] }, "Both are needed."],
  [undefined, ""],
  [{}, ""],
])("a refusal of %j says which field", (fields, words) => {
  expect(fieldWords(fields)).toBe(words);
});

describe("notices", () => {
  const texts = () => notices.value.map(({ text }) => text);

  it("of failures go when the same is done after all, those of others stay", () => {
    notify("No.", "bad", "silence");
    notify("Not that either.", "bad", "bulk");
    notify("No!", "bad", "silence");
    expect(texts()).toEqual(["Not that either.", "No!"]);
    settle("silence");
    expect(texts()).toEqual(["Not that either."]);
  });
});

describe("an address that is half wrong", () => {
  const said = (address: string, rank: number | null = null) => {
    go(address);
    act(() => render(<Ignored nRanks={8} rank={rank} />, document.body));
    return document.querySelector("p")?.textContent ?? "";
  };

  it("is said to be, and nothing is said of a right one", () => {
    expect(said("/incidents/1?rank=abc&tab=raw")).toContain("rank=abc, which cannot be read");
    expect(said("/incidents/1?from=5&to=4")).toContain("from=5, to=4");
    expect(said("/incidents/1?rank=8", 8)).toContain("ranks 0 to 7");
    expect(said("/incidents/1?rank=7", 7)).toBe("");
  });
});

describe("a job's incident on Now", () => {
  const resolved = makeIncident({ number: 1, job_id: 3, attempt: 1, state: "resolved" });
  const job = makeJob({ id: 3, attempt: 1, incident: null });

  it("is kept in sight while the job stands still, though somebody resolved it", () => {
    expect(incidentOf({ ...job, state: "stuck" }, [resolved])).toBe(1);
    expect(incidentOf({ ...job, state: "slow" }, [resolved])).toBe(1);
    expect(incidentOf({ ...job, state: "running" }, [resolved])).toBeNull();
    expect(incidentOf({ ...job, state: "stuck", attempt: 2 }, [resolved])).toBeNull();
    expect(incidentOf({ ...job, state: "stuck", incident: 4 }, [resolved])).toBe(4);
  });
});
