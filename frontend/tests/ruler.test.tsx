/* The ruler of the lanes: a moment's word never hangs over the edge, where it would be cut. */

import { render } from "preact";
import { act } from "preact/test-utils";
import { afterEach, expect, it } from "vitest";
import { Ruler } from "../src/lanes/LaneBox";
import type { Moment } from "../src/lanes/scale";
import { makeLanes, SECOND } from "./fixtures";

const FRAME = { ...makeLanes(), from_ns: 0, to_ns: 60 * SECOND };
const MOMENTS: Moment[] = [
  { kind: "began", word: "fault began", ns: 10 * SECOND },
  { kind: "first", word: "first symptom", ns: 10 * SECOND },
  { kind: "trigger", word: "triggered", ns: 13 * SECOND },
];

function marks(width: number): string[] {
  act(() => render(<Ruler lanes={FRAME} moments={MOMENTS} width={width} />, document.body));
  return [...document.querySelectorAll(".ruler-mark")].map(
    (mark) => `${mark.textContent}${mark.classList.contains("mark-left") ? " left" : " right"}`,
  );
}

afterEach(() => act(() => render(null, document.body)));

it("has whole words left of the mark where there is room, and short ones where there is some", () => {
  expect(marks(900)).toEqual(["fault began left", "first symptom left", "triggered right"]);
  expect(marks(400)).toEqual(["began left", "first left", "triggered right"]);
});

it("on a phone has the first word to the right and leaves one out that would lie on another", () => {
  expect(marks(170)).toEqual(["fault began right", " left", "triggered right"]);
  expect(document.body.textContent).toContain("first symptom at");
});
