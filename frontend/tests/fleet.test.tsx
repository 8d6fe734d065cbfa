import { render } from "preact";
import { describe, expect, it } from "vitest";
import { Blamed, Calendar } from "../src/fleet/Blamed";
import type { Recurrence } from "../src/fleet/calls";
import { nodeHref } from "../src/fleet/calls";
import { opsWords } from "../src/fleet/RankPage";
import { questionOf } from "../src/questions/calls";
import { isPage } from "../src/state/address";
import { sizeWords } from "../src/take/calls";

function drawn(content: preact.ComponentChild): HTMLElement {
  const box = document.createElement("div");
  render(content, box);
  return box;
}

const ROW: Recurrence = {
  kind: "gpu",
  name: "GPU 1 of node-1",
  node: "node-1",
  n_incidents: 7,
  newest_at: "2026-11-20T10:00:00.000Z",
  incidents: [9, 8, 7, 6, 5, 4, 3],
  days: { "2026-11-20": 2, "2026-11-01": 1, "2025-01-01": 4 },
};

describe("how far a rank is", () => {
  it("counts sends and receives beside collectives, and neither where nothing is known", () => {
    expect([opsWords(507, 0), opsWords(0, 338), opsWords(1700, 12), opsWords(0, 0), opsWords(null, null)]).toEqual([
      "507",
      "338 p2p",
      "1,700 + 12 p2p",
      "0",
      null,
    ]);
  });
});

describe("who is blamed again", () => {
  it("has a cell for each of thirty days, oldest first, and says in words which had one", () => {
    const box = drawn(<Calendar days={ROW.days} now={Date.parse("2026-11-23T06:00:00Z")} />);
    const cells = [...box.querySelectorAll("i")];
    expect(cells).toHaveLength(30);
    expect(cells.map(({ className }) => className).filter(Boolean)).toEqual(["one", "many"]);
    expect(box.querySelector("[role=img]")?.getAttribute("aria-label")).toBe("2026-11-01: 1, 2026-11-20: 2");
  });
  it("links the newest incidents, says how many more, and what was not counted", () => {
    const text = drawn(<Blamed blamed={{ since: "", rows: [ROW], n_incidents: 12, left_out: 3 }} />).textContent ?? "";
    expect(text).toContain("#9#8#7#6#5and 2 more");
    expect(text).toContain("3 more are not counted");
  });
  it("says so where nobody was", () => {
    const text = drawn(<Blamed blamed={{ since: "", rows: [], n_incidents: 0, left_out: 0 }} />).textContent;
    expect(text).toContain("Nobody was blamed here");
  });
});

describe("addresses", () => {
  it("of ranks, nodes and questions are pages, and odd names of nodes stay one part", () => {
    for (const path of ["/jobs/7/ranks/4711", "/nodes/node-1", "/questions", nodeHref("a b/ü")])
      expect(isPage(path)).toBe(true);
    for (const path of ["/jobs/7/ranks", "/jobs/7/ranks/x", "/nodes/a/b", "/questions/1"])
      expect(isPage(path)).toBe(false);
  });
  it("hold the whole question and nothing else", () => {
    const address = new URLSearchParams("job=3&per=rank&measure=ops&from=1&to=2&z=utc&kind=");
    expect(questionOf(address)).toBe("?measure=ops&per=rank&from=1&to=2");
    expect(questionOf(new URLSearchParams("job=3"))).toBe("");
  });
});

describe("sizes", () => {
  it("are said as people say them", () => {
    expect([999, 1500, 63_000, 2_340_000, 5e9].map(sizeWords)).toEqual([
      "999 B",
      "1.5 kB",
      "63 kB",
      "2.3 MB",
      "5.0 GB",
    ]);
  });
});
