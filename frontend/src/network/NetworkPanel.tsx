/*
 * What the wire did: of one group of ranks how long its ops lasted and how long bytes moved in them, rates over time, and
 * the rate of every path. Which rank's groups and which of them is shown are in the address.
 */

import { ask } from "../api";
import { Boxed } from "../parts/Boxed";
import { Empty, Loading } from "../parts/bits";
import { Failure } from "../parts/Failure";
import { Figure } from "../parts/Figure";
import { type Column, Table } from "../parts/Table";
import { useAnswer } from "../parts/useAnswer";
import { query, selectedRank, selectRank, setQuery } from "../state/address";
import { timeOfDay, zoneLabel } from "../state/clock";
import { EpochsPanel } from "./EpochsPanel";
import { ParallelismPanel } from "./ParallelismPanel";
import {
  countedWords,
  headline,
  type Measured,
  type NetworkAnswer,
  type RankOnWire,
  type UnownedRank,
  unfinishedWords,
  unheardWords,
} from "./shapes";
import "./network.css";

interface NetworkPanelProps {
  /** `jobs/7` or `incidents/12`: whose. */
  source: string;
  jobId: number;
  /** Changes when it should be asked anew. */
  beat?: string | number;
}

export function NetworkPanel({ source, jobId, beat = "" }: NetworkPanelProps) {
  const asked = addressOf(source);
  const { value, failure, again } = useAnswer(asked, () => ask<NetworkAnswer>(asked), beat);
  if (failure && !value) return <Failure error={failure} again={again} />;
  if (!value) return <Loading what="the network" />;
  if (value.groups.length === 0) {
    return (
      <Empty
        title={value.rank === null ? "No rank of this job is known." : `Rank ${value.rank} is in no communicator.`}
      >
        Bytes on the wire are told by group of ranks, as the plugin, the NCCL shim or the verbs shim reports them.
      </Empty>
    );
  }
  return (
    <div class="network">
      <Chosen answer={value} />
      <NotEnding answer={value} />
      {value.measured.n_rows === 0 ? <NotMeasured /> : <Pictures answer={value} source={source} beat={beat} />}
      <ParallelismPanel jobId={jobId} beat={beat} />
    </div>
  );
}

function addressOf(source: string): string {
  const rank = selectedRank();
  const group = query.value.get("comm");
  const given = [rank === null ? "" : `rank=${rank}`, group ? `group=${encodeURIComponent(group)}` : ""];
  const said = given.filter(Boolean).join("&");
  return `${source}/network${said ? `?${said}` : ""}`;
}

function Chosen({ answer }: { answer: NetworkAnswer }) {
  return (
    <p class="network-chosen">
      <label>
        Groups of rank {answer.rank}:{" "}
        <select value={answer.group} onChange={(change) => setQuery({ comm: change.currentTarget.value })}>
          {answer.groups.map((group) => (
            <option key={group.comm_id} value={group.comm_id} selected={group.comm_id === answer.group}>
              {group.name || group.comm_id}, {group.n_ranks.toLocaleString("en")} ranks
              {group.unfinished ? ": ops not ended" : ""}
            </option>
          ))}
        </select>
      </label>
      {answer.started_at && answer.ended_at && (
        <span class="faint">
          {timeOfDay(Date.parse(answer.started_at))} to {timeOfDay(Date.parse(answer.ended_at))} {zoneLabel()}
        </span>
      )}
    </p>
  );
}

function NotEnding({ answer }: { answer: NetworkAnswer }) {
  const [said, unheard, counted] = [unfinishedWords(answer), unheardWords(answer), countedWords(answer)];
  return (
    <>
      {said && (
        <p class="network-headline network-standing">
          <strong>{said}</strong> <span class="faint">As at {clockOf(answer.unfinished?.at)}.</span>
        </p>
      )}
      {unheard && <p class="warning">{unheard}</p>}
      {counted && <p class="faint">{counted}</p>}
    </>
  );
}

const clockOf = (at: string | null | undefined) =>
  at ? `${timeOfDay(Date.parse(at))} ${zoneLabel()}` : "an unknown time";

function NotMeasured() {
  return (
    <Empty title="Nothing of this group was measured on the wire in this time.">
      Either its ops stay inside their nodes, or no node measures transfers: <code>docs/agent.md</code> says how to
      switch it on. Op-level verdicts stand without it.
    </Empty>
  );
}

function Pictures({ answer, source, beat }: { answer: NetworkAnswer; source: string; beat: string | number }) {
  return (
    <>
      <p class={unfinishedWords(answer) ? "" : "network-headline"}>{headline(answer)}</p>
      <RestsOn measured={answer.measured} />
      <div class="network-figures">
        <Boxed
          class="network-figure"
          level={3}
          title="Time of an op"
          hint="grey: it lasted; hatched: bytes moved, pauses left out"
        >
          <Figure figure={answer.times} label="How long ops lasted and how long bytes moved, by rank" />
        </Boxed>
        <Boxed class="network-figure" level={3} title="Paths" hint="a dark row is a NIC, a dark cell a link">
          <Figure figure={answer.paths} label="Rate of every path while bytes moved" />
        </Boxed>
        {answer.matrix && (
          <Boxed class="network-figure" level={3} title="Who sends to whom" hint="a bright column is a hot expert">
            <Figure figure={answer.matrix} label="Bytes from every rank to every rank" />
          </Boxed>
        )}
      </div>
      {answer.rank !== null && (
        <EpochsPanel source={source} rank={answer.rank} group={answer.group} rates={answer.rates} beat={beat} />
      )}
      <Unowned measured={answer.measured} />
      <Table label="Ranks on the wire" isCards columns={COLUMNS} rows={answer.ranks} rowKey={(row) => row.rank} />
    </>
  );
}

/** What is missing, and what could not be seen. */
function RestsOn({ measured }: { measured: Measured }) {
  const share = measured.incomplete_share;
  const { n_compared, n_other, says } = measured.volumes;
  return (
    <>
      {says && <p class="warning">{says}</p>}
      <p class="faint">
        Measured by {measured.sources.join(" and ") || "an unknown source"}
        {measured.read_of && `, read of ${measured.read_of}`}. {measured.sight}
        {measured.left_out > 0 &&
          ` ${measured.left_out.toLocaleString("en")} transfers are left out: their op or the rest of their iteration is not known`}
        {share > 0 &&
          ` (${(share * 100).toFixed(share < 0.1 ? 1 : 0)} % belong to iterations of which something was lost)`}
        {measured.left_out > 0 && "."}
        {n_compared > 0 &&
          n_other === 0 &&
          ` All ${n_compared.toLocaleString("en")} volumes are those expected of their ops.`}
      </p>
    </>
  );
}

/** Bytes without an op: their rates stand, and nobody is judged by them. */
function Unowned({ measured }: { measured: Measured }) {
  const { share, n_ranks, ranks } = measured.unowned;
  if (n_ranks === 0) return null;
  return (
    <section class="network-unowned">
      <h3>Bytes of which no op could be told</h3>
      <p class="faint">
        {(share * 100).toFixed(share < 0.1 ? 1 : 0)} % of the bytes seen, of {n_ranks.toLocaleString("en")} ranks: their
        rates stand, and nobody is judged by them. <code>docs/verbs.md</code> says when ops cannot be told.
      </p>
      <Table label="Bytes without an op" isCards columns={UNOWNED} rows={ranks} rowKey={(row) => row.rank} />
    </section>
  );
}

const UNOWNED: Column<UnownedRank>[] = [
  { word: "Rank", cell: (row) => row.rank },
  { word: "Sent", isNumber: true, cell: (row) => `${row.mb.toLocaleString("en")} MB` },
  {
    word: "Rate of a connection",
    isNumber: true,
    title: "While its bytes moved, the median",
    cell: (row) => (row.gb_per_s === null ? "unknown" : `${row.gb_per_s.toPrecision(3)} GB/s`),
  },
  { word: "Connections", isNumber: true, cell: (row) => row.connections },
];

const ms = (value: number | null) => (value === null ? "unknown" : `${value.toFixed(value < 10 ? 2 : 1)} ms`);

const COLUMNS: Column<RankOnWire>[] = [
  {
    word: "Rank",
    cell: (row) => (
      <button type="button" class="link" onClick={() => selectRank(row.rank)}>
        {row.rank}
      </button>
    ),
  },
  { word: "Bytes moved", isNumber: true, cell: (row) => <b>{ms(row.actual_ms)}</b> },
  {
    word: "Against the median",
    isNumber: true,
    cell: (row) => (row.times_median === null ? "unknown" : `${row.times_median.toFixed(2)} ×`),
  },
  { word: "Lasted", isNumber: true, cell: (row) => ms(row.lasted_ms) },
  {
    word: "Rate",
    isNumber: true,
    title: "While bytes moved, all paths of the rank together",
    cell: (row) => (row.gb_per_s === null ? "unknown" : `${row.gb_per_s.toPrecision(3)} GB/s`),
  },
  { word: "Ended ops", isNumber: true, class: () => "faint", cell: (row) => row.n_ops },
  {
    word: "Not ended",
    isNumber: true,
    title: "Ops that the rank is in and that do not end",
    cell: (row) => (row.unfinished ? <b>{row.unfinished}</b> : "0"),
  },
];
