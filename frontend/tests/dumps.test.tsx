/* Stacks and Flight Recorder as a reader gets them: who stands out first, unknown plainly unknown, thousands in few rows. */

import axe from "axe-core";
import { type ComponentChildren, render } from "preact";
import { act } from "preact/test-utils";
import { afterEach, describe, expect, it } from "vitest";
import { cellsOf, currentCall, kindsOf, markedGroups, paceWords, stretchOf } from "../src/dumps/classes";
import { AwaitedNodes, shownRequest } from "../src/dumps/DumpsBar";
import { NobodyYet } from "../src/dumps/DumpTab";
import { RecorderView } from "../src/dumps/RecorderView";
import { groupsInQuestion, recordedRows } from "../src/dumps/recorded";
import { StacksView } from "../src/dumps/StacksView";
import type { DumpRequest, RecorderAnswer } from "../src/dumps/shapes";
import { silentOfKind } from "../src/dumps/unheard";
import { setQuery } from "../src/state/address";
import { pointAt, pointedRanks } from "../src/state/pointed";
import { makeRecorded, makeRecorder, makeStackGroup, makeStacks } from "./dumps.fixtures";

const nothing = () => undefined;

function drawn(what: ComponentChildren): HTMLElement {
  act(() => render(<main>{what}</main>, document.body));
  return document.body;
}

afterEach(() => {
  act(() => render(null, document.body));
  pointAt([]);
  setQuery({ "stacks-trainer": null, dump: null });
});

async function complaints(): Promise<string[]> {
  const { violations } = await axe.run(document.body, {
    rules: { "color-contrast": { enabled: false }, region: { enabled: false } },
  });
  return violations.map(({ id, nodes }) => `${id}: ${nodes[0].html}`);
}

const stacksOf = (stacks = makeStacks()) => (
  <StacksView stacks={stacks} source="incidents/12" selected={null} onSelect={nothing} />
);

describe("the classes of stacks", () => {
  it("stand with the smallest first and the many last, whatever the order of the answer", () => {
    const marked = markedGroups(makeStacks(), "trainer");
    expect(marked.map(({ group, mark }) => [group.id, mark])).toEqual([
      ["loads", "class-1"],
      ["wait", "same"],
    ]);
  });

  it("make a cell of every rank, and of none that was not read a healthy one", () => {
    const stacks = makeStacks();
    const cells = cellsOf(stacks, "trainer", markedGroups(stacks, "trainer"));
    const state = (rank: number) => cells.states[cells.state[cells.rank.indexOf(rank)]];
    expect([state(0), state(5), state(11)]).toEqual(["same", "class-1", "unknown"]);
    expect(cells.note[cells.rank.indexOf(11)]).toBe("py-spy is not installed");
  });

  it("draw of other kinds of process only the ranks that have one, and each as its rarest", () => {
    const stacks = makeStacks();
    stacks.groups.push(makeStackGroup({ id: "idle", kind: "loader", ranks: [4, 5, 6], is_dominant: true }));
    expect(kindsOf(stacks)).toEqual(["trainer", "loader"]);
    const cells = cellsOf(stacks, "loader", markedGroups(stacks, "loader"));
    expect(cells.rank).toEqual([4, 5, 6]);
    expect(cells.state.map((code) => cells.states[code])).toEqual(["same", "class-1", "same"]);
  });

  it("call neither of two classes of one size the many", () => {
    const stacks = makeStacks(2, 1, []);
    expect(markedGroups(stacks, "trainer").map(({ mark }) => mark)).toEqual(["class-1", "class-2"]);
  });

  it("include silent ranks whose place nobody knows", () => {
    const stacks = makeStacks();
    stacks.silent.push({ rank: 99, node: "", kind: "stacks", why: "process gone" });
    const cells = cellsOf(stacks, "trainer", markedGroups(stacks, "trainer"));
    expect(cells.rank).toContain(99);
  });

  it("say who moves only when it was looked twice", () => {
    const group = makeStackGroup({ ranks: [1, 2, 3], frozen: 2, moving: 1 });
    expect(paceWords(group, 1)).toBe("");
    expect(paceWords(group, 2)).toBe("2 do not move, 1 move");
    expect(paceWords({ ...group, frozen: 0, moving: 3 }, 2)).toBe("moves");
  });

  it("of ten thousand ranks are told apart within a blink", () => {
    const stacks = makeStacks(10_000, 4711, [9000]);
    const cells = cellsOf(stacks, "trainer", markedGroups(stacks, "trainer"));
    expect(cells.rank).toHaveLength(10_000);
    expect(cells.state.filter((code) => cells.states[code] === "class-1")).toHaveLength(1);
  });
});

describe("the call of a block", () => {
  it("is the one that tells the place, not what the library does below it", () => {
    const frames = [{ function: "select", file: "selectors.py", line: 415 }];
    expect(currentCall(makeStackGroup({ said: "data loader: D.__getitem__ (pj.py:7)", frames }))).toBe("D.__getitem__");
    expect(currentCall(makeStackGroup({ said: "nothing seen", frames }))).toBe("select");
    expect(currentCall(makeStackGroup({ said: "nothing seen", frames: [], place: "nothing seen" }))).toBe(
      "nothing seen",
    );
  });
});

describe("the tree of calls", () => {
  it("folds what has no branch, and shows the thin branch first", () => {
    const { names, children } = stretchOf(makeStacks().tree ?? { name: "", count: 0, children: [] });
    expect(names).toEqual(["<module> (train.py)", "main (train.py)"]);
    expect(children.map((child) => child.count)).toEqual([1, 14]);
  });
});

describe("the tab Stacks", () => {
  it("shows a block per rank with its call, who stands out, and the unknown plainly", async () => {
    const page = drawn(stacksOf());
    const block = [...page.querySelectorAll(".rank-block")].find((one) => one.querySelector("b")?.textContent === "5");
    expect(block?.className).toContain("block-class-1");
    expect(block?.textContent).toContain("__getitem__");
    expect(page.querySelector(".stack-class")?.textContent).toContain("Data loader");
    expect(page.querySelector(".silent-ranks")?.textContent).toContain("py-spy is not installed");
    expect(await complaints()).toEqual([]);
  });

  it("draws many ranks on a canvas that the keyboard can walk, and as a table", async () => {
    const page = drawn(stacksOf(makeStacks(200)));
    expect(page.querySelectorAll(".rank-block").length).toBeLessThan(10);
    expect(page.querySelector('[role="grid"] canvas')).not.toBeNull();
    expect(await complaints()).toEqual([]);
    act(() => setQuery({ "stacks-trainer": "table" }));
    const rows = [...page.querySelectorAll(".table-box tbody tr")].slice(0, 2).map((row) => row.textContent ?? "");
    expect(rows[0]).toMatch(/^11.*Unknown.*py-spy is not installed/);
    expect(rows[1]).toMatch(/^5.*Data loader.*__getitem__/);
  });

  it("marks the ranks of a class in the other pictures while the pointer is on it", () => {
    const page = drawn(stacksOf());
    act(() => void page.querySelector(".stack-class")?.dispatchEvent(new Event("pointerenter")));
    expect([...pointedRanks.value]).toEqual([5]);
  });
});

describe("a process group of the Flight Recorder", () => {
  const group = makeRecorder().groups[1];

  it("is a row per standing, those behind first", () => {
    const rows = recordedRows(group);
    expect(rows.map(({ ranks, standing, lag }) => [ranks.length, standing, lag])).toEqual([
      [1, "behind", 1],
      [7, "with the rest", 0],
    ]);
  });

  it("tells who did another op, where most did one", () => {
    const ranks = [0, 1, 2].map((rank) => makeRecorded(rank, rank === 2 ? { op: "all_gather" } : {}));
    expect(recordedRows({ ...group, members: null, ranks })[0]).toMatchObject({ ranks: [2], standing: "other" });
  });

  it("names nobody of two who differ", () => {
    const ranks = [0, 1].map((rank) => makeRecorded(rank, { size: `[${rank}]` }));
    expect(recordedRows({ ...group, members: null, ranks }).map(({ standing }) => standing)).toEqual([
      "with the rest",
      "with the rest",
    ]);
  });

  it("blames nobody for being earlier where nobody waits", () => {
    const ranks = [0, 1].map((rank) => makeRecorded(rank, { enqueued: 80 + rank, completed: 80 + rank }));
    expect(recordedRows({ ...group, members: null, ranks })[0]).toMatchObject({ ranks: [0], standing: "earlier" });
  });

  it("tells who is behind because it waits elsewhere from whom they all wait for", () => {
    const wait = (rank: number) => makeRecorded(rank);
    const behind = (rank: number) => makeRecorded(rank, { enqueued: 4230, started: 4230, state: "completed" });
    const recorder = {
      ...makeRecorder(),
      groups: [
        { ...group, name: "tp", desc: "tp", members: null, ranks: [wait(0), behind(1)] },
        { ...group, name: "dp", desc: "dp", members: null, ranks: [wait(1), behind(3)] },
      ],
    };
    const [dp, tp] = groupsInQuestion(recorder);
    expect([dp.group.name, dp.rows[0].ranks, dp.rows[0].standing]).toEqual(["dp", [3], "behind"]);
    expect([tp.rows[0].ranks, tp.rows[0].standing, tp.rows[0].waitsIn]).toEqual([[1], "waits", "dp"]);
  });

  it("counts members without a dump as unknown", () => {
    const rows = recordedRows({ ...group, members: [0, 1, 2], ranks: [makeRecorded(0), makeRecorded(1)] });
    expect(rows[0]).toMatchObject({ ranks: [2], standing: "unknown" });
  });

  it("has few rows for ten thousand ranks", () => {
    expect(recordedRows(makeRecorder(10_000).groups[1])).toHaveLength(2);
  });
});

describe("the tab Flight Recorder", () => {
  it("shows the group in question first, inferred members marked, refused files and missing ranks told", async () => {
    const page = drawn(<RecorderView recorder={makeRecorder()} selected={5} onSelect={nothing} />);
    expect(page.querySelector(".recorder .panel h2")?.textContent).toBe("default_pg");
    expect(page.querySelector(".recorder .panel .tag")?.textContent).toBe("members inferred");
    expect(page.querySelector("tr.standing-behind")?.textContent).toContain("1 op behind");
    expect(page.textContent).toContain("it names a global, os.system");
    expect(page.textContent).toContain("its dump was refused");
    expect(page.querySelector("#last-ops")?.textContent).toBe("Last ops of rank 5");
    expect(await complaints()).toEqual([]);
  });
});

describe("the Flight Recorder that names nobody", () => {
  const alike = makeRecorder(8, -1);
  const said = (changes: Partial<RecorderAnswer>, awaited = 0) =>
    drawn(
      <RecorderView
        recorder={{ ...alike, refused: {}, silent: [], ...changes }}
        awaited={awaited}
        selected={null}
        onSelect={nothing}
      />,
    ).querySelector(".names-nobody")?.textContent ?? "";
  const silent = [8, 9, 10].map((rank) => ({ rank, node: "node-2", kind: "recorder", why: "no answer" }));

  it("says that all is well only of a job of which every rank was read", () => {
    expect(said({})).toBe("The Flight Recorder names nobody: no rank is behind, and all did the same ops.");
  });

  it("calls nobody healthy when no rank was read", () => {
    const nobodyRead = "The Flight Recorder names nobody: no rank was read. Nothing is known of";
    expect(said({ groups: [], silent })).toBe(`${nobodyRead} 3 ranks.`);
    expect(said({ groups: [], refused: { a: "broken" } })).toBe(
      `${nobodyRead} what 1 dump that could not be read would say.`,
    );
  });

  it("says of how many ranks it speaks and of how many nothing is known, listed or not", () => {
    expect(said({ silent })).toMatch(/of the 8 ranks read, none is behind.* Nothing is known of 3 ranks\.$/);
    expect(said({ silent, silent_count: 503 })).toMatch(/known of 503 ranks\.$/);
    expect(said({}, 2)).toMatch(/known of the ranks of 2 nodes that have not answered\.$/);
    const [tp, world] = alike.groups;
    expect(said({ groups: [tp, { ...world, members: [...(world.members ?? []), 8] }] })).toMatch(/known of 1 rank\.$/);
  });

  it("counts as unknown whose dump is from before the process was gone", () => {
    expect(said({ silent: [{ ...silent[0], rank: 3 }] })).toMatch(/of the 7 ranks read.*known of 1 rank\.$/);
  });

  it("does not call the ranks alike when they differ", () => {
    expect(said({ groups: makeRecorder().groups })).toMatch(/names nobody, though ranks differ/);
  });
});

describe("counts of the unknown", () => {
  const text = (what: ComponentChildren) => drawn(what).textContent ?? "";

  it("are the server’s, not how many are listed", () => {
    expect(text(stacksOf({ ...makeStacks(), silent_count: 4321 }))).toContain("Unknown: stacks of 4,321 ranks");
    const recorder = { ...makeRecorder(), silent_count: 700, refused_count: 900 };
    const told = text(<RecorderView recorder={recorder} selected={null} onSelect={nothing} />);
    expect(told).toContain("Unknown: Flight Recorder of 700 ranks");
    expect(told).toContain("and 699 more ranks");
    expect(told).toContain("900 dumps could not be read");
  });

  it("count a rank with several silent processes once, and make no rank of a process that has none", () => {
    const stacks = makeStacks();
    stacks.silent.push({ ...stacks.silent[0] }, { ...stacks.silent[0], rank: -1 });
    expect(text(stacksOf(stacks))).toContain("Unknown: stacks of 2 ranks");
    expect(document.querySelector(".silent-ranks")?.textContent).toContain("Rank 11 and processes of no known rank");
    expect([...document.querySelectorAll(".rank-block b")].map((one) => one.textContent)).not.toContain("-1");
  });

  it("of one kind are a least number when the list of both was cut", () => {
    const silent = makeRecorder().silent;
    expect(silentOfKind(request(1, { silent, silent_count: 201 }), "recorder").total).toEqual({ n: 1, isLeast: true });
    expect(silentOfKind(request(1, { silent, silent_count: 201, kinds: ["recorder"] }), "recorder").total).toEqual({
      n: 201,
      isLeast: false,
    });
  });

  it("tell how many nodes have not answered, by the newest of answer and live message", () => {
    const asked = request(3, { nodes_answered: 1 });
    expect(text(<AwaitedNodes request={asked} row={null} />)).toContain("Nodes that have not answered: 3.");
    const row = { incident: 1, request: 3, nodes_answered: 4, nodes_expected: 4, ranks_answered: 16 };
    expect(text(<AwaitedNodes request={asked} row={row} />)).toBe("");
  });
});

function request(id: number, changes: Partial<DumpRequest> = {}): DumpRequest {
  return {
    id,
    asked_at: "2026-11-21T15:05:40.000Z",
    asked_by: "",
    kinds: ["stacks", "recorder"],
    state: "answered",
    nodes_expected: 4,
    nodes_answered: 4,
    ranks_answered: 16,
    silent: [],
    silent_count: 0,
    ...changes,
  };
}

describe("of ranks that run no Python", () => {
  const text = (what: ComponentChildren) => drawn(what).textContent ?? "";
  const silentOf = (kind: string, why: string) => [0, 1].map((rank) => ({ rank, node: "n0", kind, why }));
  const none = silentOf("stacks", "it is no Python process, so it has no Python stack");
  const unheard = silentOf("recorder", "no answer within the time; tried torch's dump file");
  const asked = (silent: typeof none, changes: Partial<DumpRequest> = {}) =>
    request(4, { ranks_answered: 0, silent, silent_count: silent.length, ...changes });

  it("one sentence says that there is nothing to take, of either kind", () => {
    for (const kind of ["stacks", "recorder"] as const) {
      const said = text(<NobodyYet request={asked([...none, ...unheard])} kind={kind} />);
      expect(said).toContain("The demo’s are C programs");
      expect(said).not.toContain("Unknown");
    }
  });

  it("it is not said while anybody might still answer, or of whom nothing is known", () => {
    const said = (request: DumpRequest) => text(<NobodyYet request={request} kind="stacks" />);
    expect(said(asked(none, { state: "open" }))).toContain("Nothing was taken yet.");
    expect(said(asked([none[0], { ...none[1], why: "not permitted" }]))).toContain("Unknown: stacks of 2 ranks");
    expect(said(asked(none, { silent_count: 9 }))).toContain("Unknown");
    expect(said(asked(unheard))).toContain("Nothing could be taken.");
  });
});

describe("which dumps are shown", () => {
  it("are the newest that somebody has answered, of that kind", () => {
    const requests = [request(3, { ranks_answered: 0, state: "open" }), request(2, { kinds: ["stacks"] }), request(1)];
    expect(shownRequest(requests, "stacks")?.id).toBe(2);
    expect(shownRequest(requests, "recorder")?.id).toBe(1);
    expect(shownRequest([requests[0]], "stacks")?.id).toBe(3);
    expect(shownRequest([], "stacks")).toBeNull();
  });

  it("are those the address names", () => {
    setQuery({ dump: "1" });
    expect(shownRequest([request(2), request(1)], "stacks")?.id).toBe(1);
  });
});
