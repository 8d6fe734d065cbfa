import { describe, expect, it } from "vitest";
import { ApiError } from "../src/api";
import { adviceLines, agrees, answerToAsked, flowCounters, stanceOf } from "../src/incident/reading";
import { notSeenTitle } from "../src/pages/IncidentPage";
import { nicsAlike, nodeState } from "../src/pages/NodesPage";
import { isFinal } from "../src/parts/Failure";
import { numberWords } from "../src/state/words";
import { makeCondition, makeFinding } from "./fixtures";

describe("a reading of Table 4", () => {
  it("agrees when side and component are the verdict's", () => {
    expect(agrees(makeCondition(), makeFinding())).toBe(true);
    expect(agrees(makeCondition({ rank: 6, peer_rank: 4, verdict: "remote" }), makeFinding())).toBe(true);
  });

  it("is overruled when it blames the other end of a NIC that is down here", () => {
    expect(agrees(makeCondition({ verdict: "remote" }), makeFinding())).toBe(false);
  });

  it("is overruled when the process was stopped and it blames the NIC", () => {
    expect(agrees(makeCondition(), makeFinding({ component: "process" }))).toBe(false);
    const proxy = makeCondition({ local_cause: "its proxy does not take what arrived" });
    expect(agrees(proxy, makeFinding({ component: "process" }))).toBe(true);
  });
});

describe("counters of both ends", () => {
  const what = "dp-0 op 41 channel 1, rank 2 to 3: posted ready transmitted done | posted received flushed consumed";
  const evidence = { what, unit: "chunks", source: "flow", rank: 2 };

  it("come in two captioned groups", () => {
    const flow = flowCounters({ ...evidence, value: "4 4 4 2 | 0 0 0 0 of 8" });
    expect(flow?.flow).toBe("dp-0 op 41 channel 1, rank 2 → 3");
    expect(flow?.ends[0]).toMatchObject({ who: "rank 2 sends", counters: expect.arrayContaining([["done", "2"]]) });
    expect(flow?.total).toBe("8");
  });

  it("say why an end has none", () => {
    expect(flowCounters({ ...evidence, value: "4 4 4 2 | not entered of 8" })?.ends[1].unseen).toBe("not entered");
  });

  it("are nothing for another measurement", () => {
    expect(flowCounters({ ...evidence, what: "port of eth0", value: "down" })).toBeNull();
  });
});

describe("another diagnosis that was asked for", () => {
  const entries = (...verbs: string[]) =>
    verbs.map((verb, id) => ({ ...ENTRY, id, verb, at: `2026-11-27T10:00:0${id}Z`, note: `note ${id}` }));
  const ENTRY = { incident: 1, actor: "ann", actor_kind: "person", before: "", after: "" };

  it("is answered by the next thing the detector says of the cause", () => {
    const found = answerToAsked(entries("diagnosed", "asked again", "commented", "confirmed", "commented"));
    expect(found).toEqual({ words: "note 3", at: "2026-11-27T10:00:03Z" });
    expect(answerToAsked(entries("asked again", "revised"))?.words).toBe("Diagnosed again: another answer.");
    expect(answerToAsked(entries("asked again", "diagnosed"))?.words).toBe("Diagnosed again: a cause is named.");
    expect(answerToAsked(entries("asked again", "named nobody"))?.words).toBe("Diagnosed again: nobody stands out.");
    expect(answerToAsked(entries("asked again", "diagnosis failed"))?.words).toMatch(/could not/);
  });

  it("has no answer yet, or one that a later diagnosis has replaced, or was never asked for", () => {
    expect(answerToAsked(entries("diagnosed", "asked again"))).toBeNull();
    expect(answerToAsked(entries("asked again", "confirmed", "asked again"))).toBeNull();
    expect(answerToAsked(entries("asked again", "confirmed", "revised"))).toBeNull();
    expect(answerToAsked(entries("diagnosed", "revised"))).toBeNull();
    expect(answerToAsked([])).toBeNull();
  });
});

it("advice has lines, and its commands can be told from its words", () => {
  expect(adviceLines("Look at it: `py-spy dump --pid 7`.\n\nThen restart.")).toEqual([
    [
      { text: "Look at it: ", isCommand: false },
      { text: "py-spy dump --pid 7", isCommand: true },
    ],
    [{ text: "Then restart.", isCommand: false }],
  ]);
});

it("what the server does not have is not asked for again, what it could not do is", () => {
  expect(isFinal(new ApiError(404, "", "", {}))).toBe(true);
  expect(isFinal(new ApiError(502, "", "", {}))).toBe(false);
  expect(isFinal(new TypeError("Failed to fetch"))).toBe(false);
});

it("spans of seconds are short, and Δ has its letter", () => {
  expect(numberWords("delta_s", 3.192)).toEqual(["Δ", "3.2 s"]);
  expect(numberWords("stalled_s", 125.71)).toEqual(["stalled", "125.7 s"]);
});

describe("the state of a node", () => {
  const node = {
    job: "llama",
    attempt: 1,
    name: "node-1",
    cluster: "",
    rack: "",
    state: "reporting",
    last_seen_at: null,
    watermark_at: null,
    clock_offset_ms: null,
    batches: 1,
    batches_refused: 0,
    rows_dropped: 0,
    losses: {},
    strays: 0,
    n_ranks: 2,
    nics: [
      { name: "eth0", port_state: "up", speed_mbps: null },
      { name: "eth1", port_state: "down", speed_mbps: null },
    ],
  };

  it("says that a NIC is down although the node reports", () => {
    expect(nodeState(node)).toEqual(["nic-down", "NIC down"]);
    expect(nodeState({ ...node, state: "silent" })).toEqual(["nic-down", "Silent, NIC down"]);
    expect(nodeState({ ...node, nics: node.nics.slice(0, 1) })).toEqual(["reporting", "Reporting"]);
  });

  it("counts NICs that are alike, and keeps those apart that are not", () => {
    const nic = (name: string, speed_mbps: number) => ({ name, port_state: "up", speed_mbps });
    expect(nicsAlike([nic("eth0", 400_000), nic("eth1", 400_000), nic("eth2", 100_000)])).toEqual([
      ["up 400 Gb/s", ["eth0", "eth1"]],
      ["up 100 Gb/s", ["eth2"]],
    ]);
  });
});

describe("what was not seen", () => {
  it("is of the time of the newest diagnosis, not of now", () => {
    const revision = { id: 2, at: "2026-11-21T18:09:56.000Z", verdict: "", culprits: [], grade: "strong" };
    expect(notSeenTitle([revision, { ...revision, id: 1, at: "2026-11-21T18:09:50.000Z" }])).toBe(
      "What was not seen at 18:09:56 UTC",
    );
    expect(notSeenTitle([])).toBe("What was not seen");
  });
});

describe("what a source says of the verdict", () => {
  const told = (sentence: string, missing: string[] = []) => {
    const { stance, words } = stanceOf(sentence, "Rank 4 is stuck.", missing);
    return `${stance}: ${words}`;
  };

  it.each([
    ["Stacks: Rank 4 is stuck.", "says: Stacks: says so"],
    ["Flight recorder, same culprit: Rank 4 is an op behind.", "agrees: Flight recorder: same culprit"],
    ["Flight recorder, disagrees: Rank 5 is.", "differs: Flight recorder, disagrees: Rank 5 is"],
    ["RAS, agrees in part: Ranks 4 and 5.", "agrees: RAS, agrees in part: Ranks 4 and 5"],
    ["Flight recorder: nobody stands out.", "says: Flight recorder: nobody stands out"],
    ["No stacks: it was not asked.", "missing: No stacks: it was not asked"],
  ])("%s", (sentence, expected) => {
    expect(told(sentence)).toBe(expected);
  });

  it("gives no reason twice", () => {
    expect(told("No stacks: no py-spy.", ["No stacks of rank 4: no py-spy."])).toBe("missing: No stacks");
  });
});
