import { render } from "preact";
import { act } from "preact/test-utils";
import { afterEach, describe, expect, it } from "vitest";
import type { Facets as Counts } from "../src/api";
import { Facets } from "../src/list/Facets";

const COUNTS = {
  state: { open: 2 }, symptom: { failure: 2 }, severity: { high: 2 }, job: { demo: 2 }, who: {}, node: { n1: 1 }, rack: {},
  team: {}, review: {},
} as unknown as Counts; // biome-ignore format: a table

let place: HTMLElement | undefined;

afterEach(() => {
  if (place) render(null, place);
  place?.remove();
});

function drawn(counts: Counts): string {
  const here = document.createElement("div");
  place = here;
  document.body.append(here);
  act(() => render(<Facets counts={counts} />, here));
  return here.textContent ?? "";
}

describe("facets of the list", () => {
  it("say why the counts of clusters may add to more than there are incidents", () => {
    expect(drawn({ ...COUNTS, cluster: { demo: 2, unknown: 1 } })).toContain("is counted for each");
  });

  it("say nothing of it where they do not", () => {
    expect(drawn({ ...COUNTS, cluster: { demo: 2 } })).not.toContain("is counted for each");
  });
});
