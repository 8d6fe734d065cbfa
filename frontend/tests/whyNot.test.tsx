/* The field of "why not another rank?": what is typed is what is asked, and it shows the rank that is answered. */

import { render } from "preact";
import { act } from "preact/test-utils";
import { afterEach, describe, expect, it, vi } from "vitest";
import { WhyNot } from "../src/incident/WhyNot";
import { makeDiagnosis } from "./fixtures";

function draw(rank: number | null, onSelect: (rank: number | null) => void = () => undefined): HTMLInputElement {
  act(() =>
    render(
      <WhyNot number={1} diagnosis={makeDiagnosis()} revision={1} rank={rank} onSelect={onSelect} />,
      document.body,
    ),
  );
  return document.querySelector("#why-rank") as HTMLInputElement;
}

function type(field: HTMLInputElement, text: string): void {
  act(() => {
    field.value = text;
    field.dispatchEvent(new Event("input", { bubbles: true }));
  });
}

afterEach(() => {
  act(() => render(null, document.body));
  vi.unstubAllGlobals();
});

describe("the field for a rank", () => {
  it("stays empty when it was emptied, and asks what was typed then", () => {
    vi.stubGlobal("fetch", () => new Promise(() => undefined));
    const asked: (number | null)[] = [];
    const field = draw(3, (rank) => asked.push(rank));
    expect(field.value).toBe("3");
    type(field, "");
    expect(field.value).toBe("");
    type(field, "99");
    act(() => {
      field.form?.dispatchEvent(new Event("submit", { bubbles: true, cancelable: true }));
    });
    expect(asked).toEqual([99]);
  });

  it.each([
    ["abc", "“abc” is no number."],
    ["-1", "-1 is no rank: ranks are whole numbers, from 0 on."],
    ["", "Which rank? Ranks are numbers, from 0 on."],
  ])("refuses “%s” in words, and clears the older answer", (text, words) => {
    vi.stubGlobal("fetch", () => new Promise(() => undefined));
    const asked: (number | null)[] = [];
    const field = draw(3, (rank) => asked.push(rank));
    type(field, text);
    act(() => {
      field.form?.dispatchEvent(new Event("submit", { bubbles: true, cancelable: true }));
    });
    expect(asked).toEqual([null]);
    expect(document.querySelector("[role=alert]")?.textContent).toBe(words);
    expect(field.value).toBe(text);
  });

  it("shows the rank that was chosen elsewhere", () => {
    vi.stubGlobal("fetch", () => new Promise(() => undefined));
    draw(3);
    expect(draw(5).value).toBe("5");
  });
});
