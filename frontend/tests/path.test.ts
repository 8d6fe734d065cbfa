import { describe, expect, it } from "vitest";
import { commName, pathGraph, pathSentences } from "../src/incident/path";
import { BOX_H, placeBoxes } from "../src/incident/place";
import type { WaitEdge } from "../src/types";

const edge = (waiter: number, waits_for: number, changes: Partial<WaitEdge> = {}): WaitEdge => ({
  waiter,
  waits_for,
  comm_id: "77",
  op: 12,
  why: "no chunk came",
  ...changes,
});
const names = { 77: "dp_0", 78: "tp_2", 79: "pp_21" };
const ranks = (n: number, first = 0) => Array.from({ length: n }, (_, i) => first + i);

/** A hang of TP 8 × PP 2 × DP n as rca writes it: every rank waits in a group of its own. */
function megatron(nDp: number): { edges: WaitEdge[]; names: Record<string, string>; victims: number[] } {
  const comms: Record<string, string> = {};
  const edges = ranks(nDp * 8, 0)
    .slice(1)
    .map((rank) => {
      const [tp, dp] = [Math.floor(rank / 8), rank % 8];
      const inTp = dp !== 0;
      const id = inTp ? `1${tp}` : "2000";
      comms[id] = inTp ? `tp_${tp}` : "dp_0";
      return edge(rank, inTp ? tp * 8 : 0, { comm_id: id, op: 200 + tp, why: `rank ${tp * 8} has not entered the op` });
    });
  return { edges, names: comms, victims: edges.map((one) => one.waiter) };
}

describe("the waiting path", () => {
  it("starts with the culprit and goes outward", () => {
    const graph = pathGraph([4], [edge(6, 4), edge(0, 6)], names);
    expect(graph.boxes.map(({ layer, ranks }) => [layer, ranks])).toEqual([
      [0, [4]],
      [1, [6]],
      [2, [0]],
    ]);
    expect(pathSentences(graph)).toEqual({
      near: ["Rank 6 waits for 4 in dp_0 op 12: no chunk came."],
      far: ["Rank 0 waits for 6 in dp_0 op 12: no chunk came."],
    });
  });

  it("keeps apart who waits in different communicators", () => {
    const { boxes } = pathGraph([4], [edge(5, 4, { comm_id: "78", op: 217 }), edge(6, 4), edge(7, 4)], names);
    expect(boxes.map(({ ranks, comm, ops }) => [ranks, comm, ops])).toEqual([
      [[4], "", ""],
      [[5], "tp_2", "op 217"],
      [[6, 7], "dp_0", "op 12"],
    ]);
  });

  it.each([1, 7, 64, 1024, 10_000])("draws %i victims with a few boxes and forgets none", (n) => {
    const edges = ranks(n, 1).map((rank) =>
      edge(rank, rank < 4 ? 0 : Math.floor(rank / 4), { comm_id: `${rank % 97}` }),
    );
    const comms = Object.fromEntries(ranks(97).map((id) => [String(id), `${["tp", "dp", "pp"][id % 3]}_${id}`]));
    const { boxes, unlisted } = pathGraph([0], edges, comms, ranks(n, 1));
    expect(boxes.length).toBeLessThanOrEqual(21);
    expect(boxes.slice(1).reduce((sum, box) => sum + box.ranks.length, 0) + unlisted).toBe(n);
  });

  it("sums up groups of one kind where they are many", () => {
    const { edges, names, victims } = megatron(128);
    const graph = pathGraph([0], edges, names, victims);
    expect(graph.unlisted).toBe(0);
    const far = graph.boxes.filter((box) => box.layer === 2);
    expect(far.map(({ comm, ops, why }) => [comm, ops, why])).toEqual([
      ["127 × tp", "ops 201–327", "that rank has not entered the op"],
    ]);
  });

  it("says how many wait of whom no step is listed", () => {
    const graph = pathGraph(
      [4],
      [edge(6, 4)],
      names,
      ranks(10_000).filter((rank) => rank !== 4),
    );
    expect(pathSentences(graph).near.at(-1)).toBe(
      "9,998 more ranks wait behind these; the path lists the nearest only.",
    );
  });

  it("puts culprits of a node in one box", () => {
    const { boxes } = pathGraph(ranks(16), [edge(20, 3)], names, [20], (rank) => `node-${rank >> 3}`);
    expect(boxes.map((box) => box.ranks.length)).toEqual([8, 8, 1]);
    expect(boxes[2].waitsFor).toEqual([0]);
  });

  it("shows both sides of a deadlock, each waiting for the other", () => {
    const graph = pathGraph([1, 2], [edge(2, 1), edge(1, 2, { comm_id: "78" }), edge(5, 1)], names);
    expect(graph.boxes.map(({ ranks, waitsFor }) => [ranks, waitsFor])).toEqual([
      [[1], [1]],
      [[2], [0]],
      [[5], [0]],
    ]);
    expect(pathSentences(graph).near).toHaveLength(3);
  });

  it("is nothing without a culprit", () => {
    expect(pathGraph([], [edge(2, 1)], names).boxes).toEqual([]);
  });

  it("finds a communicator's name though its id lost its last digits on the way", () => {
    const id = "11473923384757429879";
    expect(commName({ [id]: "dp-0" }, Number(id))).toBe("dp-0");
    expect(commName({ "9f3ab1c200d41e77": "dp-0" }, Number("0x9f3ab1c200d41e77"))).toBe("dp-0");
    expect(commName({}, 5)).toBe("");
  });
});

describe("the drawing of the path", () => {
  const { edges, names: comms, victims } = megatron(4);
  const { boxes } = pathGraph([0], edges, comms, victims);

  it.each([1300, 640, 340])("fits %i px, and no two boxes overlap", (width) => {
    const { placed, height } = placeBoxes(boxes, width);
    expect(placed).toHaveLength(boxes.length);
    for (const box of placed) {
      expect(box.x + box.width).toBeLessThanOrEqual(width + 0.5);
      expect(box.y + BOX_H).toBeLessThanOrEqual(height + 0.5);
      for (const other of placed) {
        if (other === box) continue;
        const apart =
          Math.abs(box.y - other.y) >= BOX_H || box.x + box.width < other.x || other.x + other.width < box.x;
        expect(apart, `${box.id} and ${other.id}`).toBe(true);
      }
    }
  });

  it("stands on end where layers side by side would be too narrow to read", () => {
    expect(placeBoxes(boxes, 1300).isTall).toBe(false);
    expect(placeBoxes(boxes, 340).isTall).toBe(true);
  });
});
