import { describe, expect, it } from "vitest";
import { commName, pathBoxes, pathSentences } from "../src/incident/path";
import type { WaitEdge } from "../src/types";

const edge = (waiter: number, waits_for: number, why = "no chunk came"): WaitEdge => ({
  waiter,
  waits_for,
  comm_id: 77,
  op: 12,
  why,
});

describe("the waiting path", () => {
  it("starts with the culprit and goes outward", () => {
    const boxes = pathBoxes([4], [edge(6, 4), edge(0, 6)], { 77: "dp-0" });
    expect(boxes.map(({ layer, ranks }) => [layer, ranks])).toEqual([
      [0, [4]],
      [1, [6]],
      [2, [0]],
    ]);
    expect(pathSentences(boxes)).toEqual([
      "Rank 6 waits for 4 in dp-0 op 12: no chunk came.",
      "Rank 0 waits for 6 in dp-0 op 12: no chunk came.",
    ]);
  });

  it("draws thousands who wait alike as one box", () => {
    const edges = Array.from({ length: 5000 }, (_, i) => edge(i + 1, 0));
    const boxes = pathBoxes([0], edges, {});
    expect(boxes).toHaveLength(2);
    expect(boxes[1].ranks).toHaveLength(5000);
  });

  it("ends, though ranks wait for each other in a circle", () => {
    expect(pathBoxes([1], [edge(2, 1), edge(1, 2)], {})).toHaveLength(2);
  });

  it("is nothing without a culprit", () => {
    expect(pathBoxes([], [edge(2, 1)], {})).toEqual([]);
  });

  it("finds a communicator's name though its id lost its last digits on the way", () => {
    const id = "11473923384757429879";
    expect(commName({ [id]: "dp-0" }, Number(id))).toBe("dp-0");
    expect(commName({ "9f3ab1c200d41e77": "dp-0" }, Number("0x9f3ab1c200d41e77"))).toBe("dp-0");
    expect(commName({}, 5)).toBe("");
  });
});
