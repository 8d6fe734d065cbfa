/* The lanes as a table: each flow's newest counters and what they mean. */

import { type Column, Table } from "../parts/Table";
import { spanWords } from "../state/clock";
import type { Lane } from "../types";
import { conditionWords, isReceive, tellingTickAt } from "./scale";

interface Reading {
  lane: Lane;
  /** The tick that tells most; -1 when no op was in progress. */
  i: number;
}

const counted = (word: string, of: (lane: Lane) => number[]): Column<Reading> => ({
  word,
  isNumber: true,
  cell: ({ lane, i }) => (i >= 0 ? of(lane)[i] : "–"),
});

const COLUMNS: Column<Reading>[] = [
  {
    word: "Flow",
    cell: ({ lane }) => `${lane.rank} ${isReceive(lane) ? "receives from" : "sends to"} ${lane.peer_rank}`,
  },
  {
    word: "Communicator",
    cell: ({ lane }) => (
      <>
        {lane.comm_name} <span class="faint">channel {lane.channel}</span>
      </>
    ),
  },
  { word: "Op", cell: ({ lane, i }) => `${lane.func} ${i >= 0 ? lane.ops[i] : lane.op}` },
  { word: "Transport", cell: ({ lane }) => lane.transport },
  counted("Posted", (lane) => lane.posted),
  counted("①", (lane) => lane.ready),
  counted("②", (lane) => lane.transmitted),
  counted("③", (lane) => lane.done),
  { word: "Of", isNumber: true, cell: ({ lane }) => lane.total_chunks },
  { word: "No progress", isNumber: true, cell: ({ lane, i }) => (i >= 0 ? spanWords(lane.stuck_ms[i]) : "–") },
  { word: "Meaning", cell: ({ lane, i }) => conditionWords(lane, i) },
];

export function LanesTable({ lanes, toNs }: { lanes: readonly Lane[]; toNs: number }) {
  const rows = lanes.map((lane) => ({ lane, i: tellingTickAt(lane, toNs) }));
  return (
    <Table label="Flows" columns={COLUMNS} rows={rows} rowKey={({ lane }) => lane.id}>
      <p class="faint table-note">
        ① GPU ready, ② transmitted, ③ done for a send; ① received, ② flushed, ③ consumed for a receive.
      </p>
    </Table>
  );
}
