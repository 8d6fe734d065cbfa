/* The lanes as a table: each flow's newest counters and what they mean. */

import { ScrollBox } from "../parts/ScrollBox";
import { spanWords } from "../state/clock";
import type { Lane, Lanes } from "../types";
import { conditionWords, isReceive, tellingTickAt } from "./scale";

export function LanesTable({ lanes }: { lanes: Lanes }) {
  return (
    <ScrollBox class="table-box" label="Flows">
      <table>
        <thead>
          <tr>
            <th scope="col">Flow</th>
            <th scope="col">Communicator</th>
            <th scope="col">Op</th>
            <th scope="col">Transport</th>
            <th scope="col" class="num">
              Posted
            </th>
            <th scope="col" class="num">
              ①
            </th>
            <th scope="col" class="num">
              ②
            </th>
            <th scope="col" class="num">
              ③
            </th>
            <th scope="col" class="num">
              Of
            </th>
            <th scope="col" class="num">
              No progress
            </th>
            <th scope="col">Meaning</th>
          </tr>
        </thead>
        <tbody>
          {lanes.lanes.map((lane) => (
            <Line key={lane.id} lane={lane} lanes={lanes} />
          ))}
        </tbody>
      </table>
      <p class="faint table-note">
        ① GPU ready, ② transmitted, ③ done for a send; ① received, ② flushed, ③ consumed for a receive.
      </p>
    </ScrollBox>
  );
}

function Line({ lane, lanes }: { lane: Lane; lanes: Lanes }) {
  const i = tellingTickAt(lane, lanes.to_ns);
  const cell = (values: number[]) => <td class="num">{i >= 0 ? values[i] : "–"}</td>;
  return (
    <tr>
      <th scope="row">
        {lane.rank} {isReceive(lane) ? "receives from" : "sends to"} {lane.peer_rank}
      </th>
      <td>
        {lane.comm_name} <span class="faint">channel {lane.channel}</span>
      </td>
      <td>
        {lane.func} {i >= 0 ? lane.ops[i] : lane.op}
      </td>
      <td>{lane.transport}</td>
      {cell(lane.posted)}
      {cell(lane.ready)}
      {cell(lane.transmitted)}
      {cell(lane.done)}
      <td class="num">{lane.total_chunks}</td>
      <td class="num">{i >= 0 ? spanWords(lane.stuck_ms[i]) : "–"}</td>
      <td>{conditionWords(lane, i)}</td>
    </tr>
  );
}
