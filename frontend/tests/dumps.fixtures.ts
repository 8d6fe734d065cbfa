/* Made-up dumps in the shapes of the REST API: trainers that wait for one in its data loader, and a recorder's groups. */

import type { Frame, RecorderAnswer, RecorderRank, StackGroup, StacksAnswer } from "../src/dumps/shapes";

const frame = (name: string, file: string, line: number): Frame => ({ function: name, file, line });
const LOOP = [frame("train_step", "train.py", 88), frame("main", "train.py", 140), frame("<module>", "train.py", 160)];

export function makeStackGroup(changes: Partial<StackGroup> = {}): StackGroup {
  const ranks = changes.ranks ?? [0];
  return {
    id: ranks[0],
    kind: "trainer",
    place: "in a collective",
    said: "in a collective: all_reduce (torch/distributed/distributed_c10d.py:2810)",
    ranks,
    count: ranks.length,
    is_dominant: false,
    frozen: ranks.length,
    moving: 0,
    frames: [frame("all_reduce", "torch/distributed/distributed_c10d.py", 2810), ...LOOP],
    ...changes,
  };
}

/** `stuck` is in its data loader, `silent` cannot be read, the others wait in a collective. */
export function makeStacks(nRanks = 16, stuck = 5, silent: number[] = [11]): StacksAnswer {
  const all = Array.from({ length: nRanks }, (_, rank) => rank);
  const waiting = all.filter((rank) => rank !== stuck && !silent.includes(rank));
  const loader = [frame("__getitem__", "dataset.py", 41), frame("fetch", "torch/utils/data/_utils/fetch.py", 52)];
  return {
    request: 12,
    taken_at: "2026-11-21T15:05:40.000Z",
    looks: 2,
    commands: [
      { kind: "trainer", command: "python train.py --config llama.yaml", count: nRanks - silent.length },
      { kind: "loader", command: "python train.py", count: 4 },
    ],
    order: {
      places: all.map((rank) => ({
        rank,
        node: `node-${Math.floor(rank / 4)}`,
        tp: rank % 4,
        pp: Math.floor(rank / 4) % 2,
        dp: Math.floor(rank / 8),
        ep: null,
      })),
    },
    groups: [
      makeStackGroup({ id: "wait", ranks: waiting, is_dominant: true, is_wait: true }),
      makeStackGroup({
        id: "loads",
        place: "data loader",
        said: "data loader: __getitem__ (dataset.py:41)",
        ranks: [stuck],
        frames: [...loader, ...LOOP],
      }),
      makeStackGroup({
        id: "worker",
        kind: "loader",
        place: "in its own code",
        said: "in its own code: decode (dataset.py:90)",
        ranks: [stuck],
        count: 4,
        frames: [frame("decode", "dataset.py", 90)],
      }),
    ],
    tree: {
      name: "<module> (train.py)",
      count: nRanks - silent.length,
      children: [
        {
          name: "main (train.py)",
          count: nRanks - silent.length,
          children: [
            { name: "all_reduce (distributed_c10d.py)", count: waiting.length, children: [] },
            { name: "__getitem__ (dataset.py)", count: 1, children: [] },
          ],
        },
      ],
    },
    silent: silent.map((rank) => ({
      rank,
      node: `node-${Math.floor(rank / 4)}`,
      kind: "stacks",
      why: "py-spy is not installed",
    })),
    left_out: 0,
  };
}

export function makeRecorded(rank: number, changes: Partial<RecorderRank> = {}): RecorderRank {
  return {
    rank,
    enqueued: 4231,
    started: 4231,
    completed: 4230,
    state: "started",
    op: "all_reduce",
    size: "[4096, 8192]",
    dtype: "BFloat16",
    age_s: 14 + rank / 100,
    ...changes,
  };
}

export function makeRecorder(nRanks = 8, behind = 5): RecorderAnswer {
  const ranks = Array.from({ length: nRanks }, (_, rank) =>
    makeRecorded(rank, rank === behind ? { enqueued: 4230, started: 4230, state: "completed" } : {}),
  );
  return {
    request: 12,
    version: "2.10",
    backend: "nccl",
    groups: [
      {
        name: "3",
        desc: "tp_0",
        members: [0, 1],
        inferred: false,
        said: "All 2 ranks are at op 88.",
        ranks: [makeRecorded(0, { enqueued: 88 }), makeRecorded(1, { enqueued: 88 })],
      },
      {
        name: "0",
        desc: "default_pg",
        members: ranks.map(({ rank }) => rank),
        inferred: true,
        said: `Rank ${behind} has not queued op 4,231; 7 ranks wait in it.`,
        ranks,
      },
    ],
    last_ops: [{ rank: 5, group: "default_pg", seq: 4230, op: "all_reduce", state: "completed", stream: 7 }],
    findings: [],
    refused: { "rank9.pickle": "it names a global, os.system" },
    silent: [{ rank: 9, node: "node-2", kind: "recorder", why: "its dump was refused" }],
  };
}
