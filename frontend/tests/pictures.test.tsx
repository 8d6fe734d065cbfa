/* What a reader of the incident page gets, drawn for real: words, marks and what axe has to say about them. */

import axe from "axe-core";
import { type ComponentChildren, render } from "preact";
import { act } from "preact/test-utils";
import { afterEach, describe, expect, it } from "vitest";
import { TopologyGrid } from "../src/grid/TopologyGrid";
import { nodeNames } from "../src/grid/words";
import { ComparedPanel } from "../src/incident/ComparedPanel";
import { EvidenceTab } from "../src/incident/EvidenceTab";
import { DiagnoseAgain, Verdict } from "../src/incident/Verdict";
import { WaitPath } from "../src/incident/WaitPath";
import { WhyNot } from "../src/incident/WhyNot";
import { FlowLanes } from "../src/lanes/FlowLanes";
import { pointAt, pointedRanks } from "../src/state/pointed";
import { makeDiagnosis, makeFinding, makeGrid, makeIncident, makeLane, makeLanes, SECOND } from "./fixtures";

const grid = makeGrid(8, 2, { 4: "culprit" });
const nodeOf = nodeNames(grid);
const nothing = () => undefined;

function drawn(what: ComponentChildren): HTMLElement {
  act(() => render(<main>{what}</main>, document.body));
  return document.body;
}

afterEach(() => {
  act(() => render(null, document.body));
  pointAt([]);
});

/** Contrast needs a layout, which this DOM does not have: the browser tests look at that. */
async function complaints(): Promise<string[]> {
  const { violations } = await axe.run(document.body, {
    rules: { "color-contrast": { enabled: false }, region: { enabled: false } },
  });
  return violations.map(({ id, nodes }) => `${id}: ${nodes[0].html}`);
}

const slow = makeDiagnosis({
  findings: [
    makeFinding({
      cover: [
        { kind: "flow", n: 1, of: 32, whole: "rank 4" },
        { kind: "rank", n: 2, of: 2, whole: "node-2" },
      ],
      evidence: [{ what: "copy of a chunk", value: 0.412, unit: "ms", source: "flow", rank: 4 }],
      began_ns: 4.6 * SECOND,
    }),
  ],
  alternatives: [
    {
      subject: { kind: "rank", name: "rank 6", ranks: [6], node: "node-3" },
      why_not: "It stopped later.",
      evidence: [],
    },
  ],
  clocks: [
    { node: "node-2", offset_ns: 340_000_000, error_ns: 200_000 },
    { node: "node-3", offset_ns: -2_000_000, error_ns: 200_000 },
  ],
});

describe("the waiting path", () => {
  it("is a drawing for the eye and sentences for everybody", async () => {
    const page = drawn(<WaitPath diagnosis={slow} culprits={[4]} nodeOf={nodeOf} />);
    expect(page.querySelector("svg.path-drawing")?.getAttribute("aria-hidden")).toBe("true");
    expect(page.querySelector(".path-culprit")?.textContent).toBe("rank 4node-2 · started it");
    expect([...page.querySelectorAll(".path-label")].map((one) => one.textContent)).toEqual(["dp_0", "op 12"]);
    expect(page.querySelector(".path-words")?.textContent).toContain(
      "Rank 6 waits for 4 in dp_0 op 12: no chunk came.",
    );
    expect(page.textContent).toContain("the nearest 1 of 7 waiting ranks");
    expect(await complaints()).toEqual([]);
  });

  it("marks in the other pictures whom the pointer is on", () => {
    const page = drawn(<WaitPath diagnosis={slow} culprits={[4]} nodeOf={nodeOf} />);
    const box = page.querySelector(".path-victim");
    act(() => void box?.dispatchEvent(new Event("pointerenter")));
    expect([...pointedRanks.value]).toEqual([6]);
    act(() => void box?.dispatchEvent(new Event("pointerleave")));
    expect([...pointedRanks.value]).toEqual([]);
  });

  it("is left out where nobody is known to wait", () => {
    const page = drawn(<WaitPath diagnosis={makeDiagnosis({ path: [] })} culprits={[4]} nodeOf={nodeOf} />);
    expect(page.querySelector(".wait-path")).toBeNull();
  });
});

describe("the lanes", () => {
  const lanes = makeLanes([makeLane(), makeLane({ id: "victim", rank: 6, peer_rank: 4 })]);
  const flows = (
    <FlowLanes
      lanes={lanes}
      selected={null}
      culprits={[4]}
      diagnosis={slow}
      nodeOf={nodeOf}
      onSelect={nothing}
      onWhyNot={nothing}
    />
  );

  it("stand by role, with the moments of the fault above them and in words", async () => {
    const page = drawn(flows);
    expect([...page.querySelectorAll(".lane-heading")].map((one) => one.textContent)).toEqual([
      "Started it",
      "Only wait",
    ]);
    expect([...page.querySelectorAll(".ruler-mark")]).toHaveLength(3);
    expect(page.querySelector(".lanes .visually-hidden")?.textContent).toMatch(
      /^fault began at .*, first symptom at .*, triggered at /,
    );
    expect(page.textContent).toContain("are put right, by up to 340 ms");
    expect(await complaints()).toEqual([]);
  });

  it("say what it means that none was seen in progress: of a job that goes on, nothing bad", () => {
    const none = { ...flows.props, lanes: makeLanes([]) };
    const page = drawn(<FlowLanes {...none} />);
    expect(page.textContent).toContain("of these ranks none was in this time");
    expect(page.textContent).not.toContain("0 of 0");
    expect(page.querySelector(".legend")).toBeNull();
    expect(drawn(<FlowLanes {...none} allGoOn />).textContent).toContain(
      "They went on, so this is no sign of trouble.",
    );
  });

  it("mark the rank another picture points at", () => {
    const page = drawn(flows);
    act(() => pointAt([6]));
    expect([...page.querySelectorAll(".lane-labels li")].map((one) => one.classList.contains("pointed"))).toEqual([
      false,
      true,
    ]);
  });
});

describe("what the verdict shows", () => {
  const verdict = (changes: Partial<Parameters<typeof Verdict>[0]> = {}) => (
    <Verdict row={makeIncident()} diagnosis={slow} grid={grid} seenBefore={[]} onSelect={nothing} {...changes} />
  );
  const asking = (changes: Partial<Parameters<typeof DiagnoseAgain>[0]> = {}) =>
    verdict({
      children: (
        <DiagnoseAgain row={makeIncident()} mayDiagnose isAsked={false} timeline={[]} onActed={nothing} {...changes} />
      ),
    });

  it("says step by step how far it reaches", async () => {
    const page = drawn(verdict());
    expect([...page.querySelectorAll(".cover li")].map((one) => one.textContent)).toEqual([
      "1 of 32 flows of rank 4",
      "all 2 ranks of node-2",
    ]);
    expect(await complaints()).toEqual([]);
  });

  it("says of a tie which ranks are left, of which one started it", async () => {
    const ends = [4, 6].map((rank) => ({ kind: "gpu", name: `rank ${rank}`, ranks: [rank], node: "node-2" }));
    const edge = { waiter: 5, waits_for: 4, comm_id: "77", op: 12, why: "no chunk came" };
    const diagnosis = makeDiagnosis({ findings: [makeFinding({ culprits: [], tied: ends })], path: [edge] });
    const row = makeIncident({ culprits: [], n_culprits: 0 });
    expect(drawn(verdict({ diagnosis, row })).querySelector(".culprit-card .big")?.textContent).toBe(
      "One of ranks 4, 6",
    );
    const path = drawn(<WaitPath diagnosis={diagnosis} culprits={[]} nodeOf={() => "node-2"} />);
    expect(path.textContent).toContain("one of these started it");
    expect(await complaints()).toEqual([]);
  });

  it("names the rack before its ranks, and says what it is where it is an alternative", async () => {
    const rack = { kind: "rack", name: "r3", ranks: [4, 5], node: "" };
    const diagnosis = makeDiagnosis({ findings: [makeFinding({ subject: rack, culprits: [4, 5] })] });
    const page = drawn(verdict({ diagnosis, row: makeIncident({ culprits: [4, 5], n_culprits: 32 }) }));
    expect(page.querySelector(".culprit-card .big")?.textContent).toBe("Rack r3");
    expect(page.querySelector(".culprit-card")?.textContent).toContain("Ranks 4–5 of 32");
    expect(await complaints()).toEqual([]);
    const other = makeDiagnosis({ alternatives: [{ subject: rack, why_not: "It is weaker.", evidence: [] }] });
    const asked = drawn(<WhyNot number={1} diagnosis={other} revision={1} rank={null} onSelect={nothing} />);
    expect(asked.querySelector(".alternatives")?.textContent).toContain("Why not rack r3?");
  });

  it("offers another diagnosis to who may ask for one, and says while it is made", () => {
    const button = (page: HTMLElement) =>
      [...page.querySelectorAll("button")].some((one) => one.textContent === "Diagnose again");
    expect(button(drawn(asking()))).toBe(true);
    expect(button(drawn(asking({ mayDiagnose: false })))).toBe(false);
    const asked = drawn(asking({ isAsked: true }));
    expect(button(asked)).toBe(false);
    expect(asked.querySelector('[role="status"]')?.textContent).toBe("diagnosing …");
  });

  it("says of what nobody caused that it was looked for, and what can be done", () => {
    const row = makeIncident({ symptom: "external", certainty: "suspected", condition: "clear", culprits: [] });
    const nobody = makeDiagnosis({ findings: [] });
    const page = drawn(verdict({ row, diagnosis: nobody }));
    expect(page.querySelector(".verdict-grade")?.textContent).toBe("It was looked for, and nobody stands out.");
    expect(page.querySelector(".culprit-card .big")?.textContent).toBe("Nobody named");
    expect(page.querySelector(".advice")?.textContent).toMatch(/Diagnose again reads the reported time.*report it on/);
    for (const searching of [
      { row, diagnosis: null },
      { row: { ...row, condition: "firing" as const }, diagnosis: nobody },
    ])
      expect(drawn(verdict(searching)).querySelector(".verdict-grade")?.textContent).toContain("is being looked for");
  });

  it("says beside it what came of asking", () => {
    const entry = {
      incident: 1,
      at: "2026-11-27T10:00:00Z",
      actor: "ann",
      actor_kind: "person",
      before: "",
      after: "",
    };
    const note = "Diagnosed again: the same answer as revision 2.";
    const timeline = [
      { ...entry, id: 1, verb: "asked again", note: "" },
      { ...entry, id: 2, verb: "confirmed", note },
    ];
    expect(drawn(asking({ timeline })).querySelector('.verdict-grade [role="status"]')?.textContent).toContain(note);
    expect(drawn(asking()).querySelector('.verdict-grade [role="status"]')?.textContent).toBe("");
  });

  it("lists in which layer the trouble is and what each source says of it", async () => {
    const agreement = [
      "Stacks: rank 4 is in the data loader.",
      "Flight recorder, same culprit: Rank 4 is an op behind.",
      "No RAS: it could not be asked.",
    ];
    const page = drawn(verdict({ diagnosis: makeDiagnosis({ agreement, layer: "data loader" }) }));
    expect(page.querySelector(".layer")?.textContent).toBe("Layer: data loader");
    expect([...page.querySelectorAll(".agreement li")].map((one) => one.className)).toEqual([
      "stance-says",
      "stance-agrees",
      "stance-missing",
    ]);
    expect(page.querySelector(".stance-agrees")?.textContent).toBe("Flight recorder: same culprit");
    expect(await complaints()).toEqual([]);
  });

  it("links to where the same part was blamed before", () => {
    const before = [{ incident: 8, at: "2026-11-18T10:00:00.000Z", what: "NIC eth0 of node-2", ranks: [5] }];
    const page = drawn(verdict({ seenBefore: before }));
    expect(page.querySelector<HTMLAnchorElement>(".blamed-before a")?.getAttribute("href")).toBe("/incidents/8");
    expect(page.querySelector(".blamed-before")?.textContent).toContain("NIC eth0 of node-2");
  });
});

describe("comparisons, evidence and questions", () => {
  it("are tables whose bars only repeat them", async () => {
    const rows = [
      { what: "GPU copy", usual: 0.131, now: 0.412, unit: "ms" },
      { what: "NIC sends", usual: 0.094, now: 0.096, unit: "ms" },
    ];
    const page = drawn(
      <ComparedPanel id="parts" title="Where the slow op’s time goes" hint="" rows={rows} marksWorst />,
    );
    expect(page.querySelector("tbody tr")?.textContent).toBe("GPU copy131 µs412 µs3.1 ×");
    expect(page.querySelectorAll(".worst")).toHaveLength(1);
    expect(await complaints()).toEqual([]);
  });

  it("mark where a rank loses time of its own, and not that it waits for others longer still", () => {
    const rows = [
      { what: "NIC and network", usual: 76, now: 388, unit: "ms" },
      { what: "peers' data", usual: 346, now: 723, unit: "ms" },
    ];
    const page = drawn(<ComparedPanel id="parts" title="Parts" hint="" rows={rows} marksWorst />);
    expect(page.querySelector("tr:has(.worst)")?.textContent).toContain("NIC and network");
  });

  it("tell the clocks of the nodes, the farthest off first, and fold them", async () => {
    const page = drawn(<EvidenceTab diagnosis={slow} revisions={[]} />);
    const clocks = [...page.querySelectorAll("details")].find((one) => one.textContent?.includes("Clocks of 2 nodes"));
    expect(clocks?.open).toBe(false);
    expect(clocks?.querySelector("tbody tr")?.textContent).toBe("node-2+340 ms200 µs");
    expect(await complaints()).toEqual([]);
  });

  it("ask why not another rank, and list who else could have been blamed", async () => {
    const page = drawn(<WhyNot number={12} diagnosis={slow} revision={1} rank={null} onSelect={nothing} />);
    expect(page.querySelector(".alternatives")?.textContent).toBe("Why not rank 6? It stopped later.");
    expect(page.querySelector("#why-rank")).not.toBeNull();
    expect(await complaints()).toEqual([]);
  });

  it("hand the rank asked about to the address, which holds it for grid and lanes too", () => {
    const asked: (number | null)[] = [];
    const page = drawn(
      <WhyNot number={12} diagnosis={slow} revision={1} rank={null} onSelect={(rank) => asked.push(rank)} />,
    );
    const field = page.querySelector<HTMLInputElement>("#why-rank");
    act(() => {
      if (field) field.value = "6";
      field?.dispatchEvent(new Event("input", { bubbles: true }));
    });
    act(() => void page.querySelector("form")?.dispatchEvent(new Event("submit", { bubbles: true, cancelable: true })));
    expect(asked).toEqual([6]);
  });

  it("draw the grid beside them without complaint", async () => {
    drawn(<TopologyGrid columns={grid} selected={null} onSelect={nothing} />);
    expect(await complaints()).toEqual([]);
  });
});
