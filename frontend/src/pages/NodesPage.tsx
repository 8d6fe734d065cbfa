/* Nodes: who reports, how far behind, how wrong its clock is, what it lost, and the state of its NICs. */

import { useEffect, useState } from "preact/hooks";
import { readNodes } from "../api";
import { Ago, Empty, Loading } from "../parts/bits";
import { Failure } from "../parts/Failure";
import { later } from "../parts/later";
import { type Column, Table } from "../parts/Table";
import { pageTitle } from "../state/badge";
import { spanWords } from "../state/clock";
import { count, LET_GO, LET_GO_LOSES, lossWords, NODE_STATE, ONLY_ODD, readable, worded } from "../state/words";
import type { NodeRow } from "../types";

const BlamedHere = later(async () => {
  const { BlamedEverywhere } = await import("../fleet/BlamedEverywhere");
  return BlamedEverywhere;
}, "who was blamed");
const REFRESH_MS = 5000;
const CLOCK_OFF_MS = 1000;
const WORST_FIRST = ["nic-down", "silent", "refused", "unheard", "catching_up", "reporting", "ended"];

export function NodesPage() {
  const [nodes, setNodes] = useState<NodeRow[] | null>(null);
  const [letGo, setLetGo] = useState<Record<string, number>>({});
  const [failure, setFailure] = useState<Error | null>(null);
  const load = () =>
    readNodes().then((answer) => {
      setNodes(answer.nodes);
      setLetGo(answer.let_go);
      setFailure(null);
    }, setFailure);
  useEffect(() => {
    pageTitle.value = "Nodes";
    void load();
    const timer = setInterval(load, REFRESH_MS);
    return () => clearInterval(timer);
  }, []);
  return (
    <div class="page">
      <h1>Nodes</h1>
      {failure && <Failure error={failure} again={load} />}
      {!nodes && !failure && <Loading what="nodes" />}
      {nodes?.length === 0 && (
        <Empty title="No node has reported yet.">
          <p>A node appears when its agent sends the first batch.</p>
        </Empty>
      )}
      {nodes && nodes.length > 0 && (
        <Table label="Nodes" isCards columns={NODE_COLUMNS} rows={sorted(nodes)} rowKey={keyOf} />
      )}
      <BlamedHere />
      {nodes && <LetGo counts={letGo} />}
    </div>
  );
}

/** What retention let go of in all the time of this installation; what was lost by it stands first. */
export function LetGo({ counts }: { counts: Record<string, number> }) {
  const kinds = Object.keys(counts).filter((kind) => counts[kind] > 0);
  if (kinds.length === 0) return <p class="faint">Retention has let go of no evidence yet.</p>;
  const loses = (kind: string) => LET_GO_LOSES.includes(kind);
  kinds.sort((a, b) => Number(loses(b)) - Number(loses(a)));
  return (
    <section class="let-go" aria-labelledby="let-go">
      <h2 id="let-go">Let go of by retention</h2>
      <ul>
        {kinds.map((kind) => (
          <li key={kind} class={loses(kind) ? "old" : "faint"}>
            {count(counts[kind], ...(LET_GO[kind] ?? [readable(kind), readable(kind)]))}
          </li>
        ))}
      </ul>
    </section>
  );
}

function sorted(nodes: NodeRow[]): NodeRow[] {
  const weight = (node: NodeRow) => WORST_FIRST.indexOf(nodeState(node)[0]);
  return [...nodes].sort((a, b) => weight(a) - weight(b) || a.name.localeCompare(b.name, "en", { numeric: true }));
}

export const NODE_COLUMNS: Column<NodeRow>[] = [
  { word: "Node", cell: (node) => <a href={`/nodes/${encodeURIComponent(node.name)}`}>{node.name}</a> },
  { word: "State", cell: (node) => <NodeState node={node} /> },
  {
    word: "Job",
    cell: (node) => (
      <>
        {node.job} <span class="faint">attempt {node.attempt}</span>
      </>
    ),
  },
  { word: "Place", cell: (node) => <Place node={node} /> },
  { word: "Ranks", isNumber: true, cell: (node) => node.n_ranks },
  { word: "Last batch", isNumber: true, cell: (node) => <Ago at={node.last_seen_at} /> },
  { word: "Data up to", isNumber: true, cell: (node) => <Ago at={node.watermark_at} never="unknown" /> },
  {
    word: "Clock",
    isNumber: true,
    class: (node) => (isClockOff(node) ? "old" : ""),
    cell: (node) => <Clock node={node} />,
  },
  { word: "NICs", cell: (node) => <Nics node={node} /> },
  { word: "Losses", cell: (node) => <Losses node={node} /> },
  { word: "Batches", isNumber: true, cell: (node) => node.batches.toLocaleString("en-US") },
];

/** Where it stands, as far as its agent says. */
function Place({ node }: { node: NodeRow }) {
  if (!node.cluster && !node.rack) return <span class="faint">unknown</span>;
  return (
    <>
      {node.cluster || <span class="faint">cluster unknown</span>}
      {", "}
      {node.rack ? `rack ${node.rack}` : <span class="faint">rack unknown</span>}
    </>
  );
}

function isClockOff(node: NodeRow): boolean {
  return node.clock_offset_ms !== null && Math.abs(node.clock_offset_ms) > CLOCK_OFF_MS;
}

const keyOf = (node: NodeRow) => `${node.job} ${node.attempt} ${node.name}`;

function isDown(nic: NodeRow["nics"][number]): boolean {
  return !["up", "active", "unknown"].includes(nic.port_state.toLowerCase());
}

/** What reports may still be cut off: a port that is down outweighs a node that reports. */
export function nodeState(node: NodeRow): [code: string, word: string] {
  const n = node.state === "ended" ? 0 : node.nics.filter(isDown).length;
  if (n === 0) return [node.state, worded(NODE_STATE, node.state)];
  const nic = n === 1 ? "NIC down" : `${n} NICs down`;
  return ["nic-down", node.state === "reporting" ? nic : `${worded(NODE_STATE, node.state)}, ${nic}`];
}

function NodeState({ node }: { node: NodeRow }) {
  const [code, word] = nodeState(node);
  return (
    <span class={`job-state node-${code}`}>
      <i aria-hidden="true" />
      {word}
    </span>
  );
}

/** A clock that is off by less is used as it is; while a spool drains, nobody can tell late data from a wrong clock. */
function Clock({ node }: { node: NodeRow }) {
  if (node.clock_offset_ms !== null) return <>{signed(node.clock_offset_ms)}</>;
  return <span class="faint">{node.state === "catching_up" ? "unknown" : "within 5\u00a0s"}</span>;
}

function signed(ms: number): string {
  return `${ms >= 0 ? "+" : "−"}${spanWords(Math.abs(ms))}`;
}

/** What is down by name; what is up only counted, as a node may have many alike. */
function Nics({ node }: { node: NodeRow }) {
  if (node.nics.length === 0) return <span class="faint">unknown</span>;
  const down = node.nics.filter(isDown);
  return (
    <ul class="nics">
      {down.map((nic) => (
        <li key={nic.name} class="nic-down">
          <code>{nic.name}</code> <b>{nic.port_state}</b>
          {nic.speed_mbps ? <span class="faint"> {speed(nic.speed_mbps)}</span> : ""}
        </li>
      ))}
      {nicsAlike(node.nics.filter((nic) => !isDown(nic))).map(([words, names]) => (
        <li key={words} title={names.join(", ")}>
          {names.length > 1 ? `${names.length} NICs` : <code>{names[0]}</code>} {words}
        </li>
      ))}
    </ul>
  );
}

/** Names of NICs by what is said of them: "up 400 Gb/s". */
export function nicsAlike(nics: NodeRow["nics"]): [words: string, names: string[]][] {
  const alike = new Map<string, string[]>();
  for (const { name, port_state, speed_mbps } of nics) {
    const words = speed_mbps ? `${port_state} ${speed(speed_mbps)}` : port_state;
    alike.set(words, [...(alike.get(words) ?? []), name]);
  }
  return [...alike];
}

function speed(mbps: number): string {
  return mbps >= 1000 ? `${mbps / 1000} Gb/s` : `${mbps} Mb/s`;
}

function Losses({ node }: { node: NodeRow }) {
  const losses = Object.entries(node.losses).filter(([, n]) => n > 0);
  const worded = (odd: boolean) =>
    losses.filter(([kind]) => ONLY_ODD.includes(kind) === odd).map(([kind, n]) => lossWords(kind, n));
  const bad = worded(false);
  if (node.rows_dropped > 0) bad.push(`${count(node.rows_dropped, "row")} dropped`);
  if (node.batches_refused > 0) bad.push(`${count(node.batches_refused, "batch", "batches")} refused`);
  if (node.strays > 0) bad.push(`${count(node.strays, "batch", "batches")} of an earlier attempt, seen by nobody`);
  const odd = worded(true);
  if (bad.length + odd.length === 0) return <span class="faint">none</span>;
  return (
    <>
      <span class="old">{bad.join(", ")}</span>
      {bad.length > 0 && odd.length > 0 && ", "}
      <span class="faint">{odd.join(", ")}</span>
    </>
  );
}
