/* What retention let go of, on the page Nodes: what was lost by it first, and nothing made up. */

import { render } from "preact";
import { act } from "preact/test-utils";
import { afterEach, expect, it } from "vitest";
import { LetGo } from "../src/pages/NodesPage";

afterEach(() => act(() => render(null, document.body)));

const said = (counts: Record<string, number>) => {
  act(() => render(<LetGo counts={counts} />, document.body));
  return [...document.querySelectorAll("li")].map((one) => one.textContent);
};

it("tells losses before what only aged, in words also for kinds of a newer server", () => {
  expect(said({ windows: 3, windows_cut: 0, hours: 1, odd_ones: 2 })).toEqual([
    "1 hour of traces dropped before all of it was saved or summed up",
    "3 pinned windows of incidents resolved longer ago than evidence is kept",
    "2 Odd ones",
  ]);
});

it("says that nothing was let go of", () => {
  expect(said({ windows: 0 })).toEqual([]);
  expect(document.body.textContent).toBe("Retention has let go of no evidence yet.");
});
