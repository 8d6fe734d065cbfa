/* One rank: where it runs, how far it is in each communicator, its flows now, its ops of the last minute, who was blamed there. */

import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Ago, Copy, Loading } from "../parts/bits";
import { Failure } from "../parts/Failure";
import { Figure } from "../parts/Figure";
import { type Column, Table } from "../parts/Table";
import { useAnswer } from "../parts/useAnswer";
import { pageTitle } from "../state/badge";
import { spanWords } from "../state/clock";
import { count } from "../state/words";
import { Blamed } from "./Blamed";
import { type FlowNow, type InComm, nodeHref, type RankAnswer, type RankPlace, rankHref, readRank } from "./calls";
import "./fleet.css";

const REFRESH_MS = 5000;
const STILL_MS = 500;

/** A number that rises every few seconds while the page is in sight. */
export function useBeat(everyMs = REFRESH_MS): number {
  const [beat, setBeat] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => document.visibilityState === "visible" && setBeat((n) => n + 1), everyMs);
    return () => clearInterval(timer);
  }, []);
  return beat;
}

export function RankPage({ id, rank }: { id: number; rank: number }) {
  const { value, failure, again } = useAnswer(`rank ${id} ${rank}`, () => readRank(id, rank), useBeat());
  useEffect(() => {
    pageTitle.value = `Rank ${rank}`;
  }, [rank]);
  if (failure && !value) return <Failure error={failure} again={again} />;
  if (!value) return <Loading what={`rank ${rank}`} />;
  return <Loaded id={id} answer={value} />;
}

function Loaded({ id, answer }: { id: number; answer: RankAnswer }) {
  const { place, communicators, flows, incidents, at, left_out } = answer.rank;
  return (
    <div class="page rank-page">
      <div class="job-head">
        <h1>
          Rank {place.rank}{" "}
          <span class="faint">
            of <a href={`/jobs/${id}?rank=${place.rank}`}>{answer.job}</a> attempt {answer.attempt}
          </span>
        </h1>
        <Facts place={place} at={at} />
        <Mates id={id} place={place} />
        {incidents.length > 0 && (
          <p>
            Blamed in this attempt:{" "}
            <span class="number-links">
              {incidents.map((number) => (
                <a key={number} href={`/incidents/${number}?rank=${place.rank}`}>
                  #{number}
                </a>
              ))}
            </span>
          </p>
        )}
      </div>
      <section class="group" aria-labelledby="communicators">
        <h2 id="communicators">Communicators</h2>
        {communicators.length === 0 && <p class="faint">It has not joined any that is known.</p>}
        {communicators.length > 0 && (
          <Table label="Communicators" isCards columns={IN_COMM} rows={communicators} rowKey={(row) => row.comm_id} />
        )}
      </section>
      <section class="group rank-flows" aria-labelledby="flows-now">
        <h2 id="flows-now">Flows in progress</h2>
        {flows.length === 0 && <p class="faint">None at the newest tick: it is in no op whose flows can be seen.</p>}
        {flows.length > 0 && (
          <Table
            label="Flows"
            isCards
            columns={flowColumns(id)}
            rows={flows}
            rowKey={(row) => `${row.comm_name} ${row.channel} ${row.peer_rank} ${row.direction} ${row.op}`}
          />
        )}
        {left_out > 0 && <p class="faint">{count(left_out, "row")} left out.</p>}
      </section>
      <section class="panel" aria-labelledby="rank-ops">
        <div class="panel-head">
          <h2 id="rank-ops">Ops of the last minute</h2>
          <a href={`/questions?job=${id}&per=rank&measure=duration&of=p50`}>Compare ranks …</a>
        </div>
        <Figure figure={answer.ops} label={`How long the ops of rank ${place.rank} took`} />
      </section>
      <Blamed blamed={answer.blamed} title={`Blamed on ${place.node} in thirty days`} />
    </div>
  );
}

function Facts({ place, at }: { place: RankPlace; at: string | null }) {
  const coordinates = (["tp", "pp", "dp", "ep"] as const).filter((name) => place[name] >= 0);
  return (
    <dl class="facts">
      <Fact word="Node">
        <a href={nodeHref(place.node)}>{place.node}</a>
      </Fact>
      {place.local_rank >= 0 && <Fact word="GPU">{place.local_rank}</Fact>}
      {place.gpu && (
        <Fact word="GPU bus id">
          <Copy text={place.gpu} label="GPU bus id" />
        </Fact>
      )}
      {place.gpu_uuid && (
        <Fact word="GPU UUID">
          <Copy text={place.gpu_uuid} label="GPU UUID" />
        </Fact>
      )}
      <Fact word="NIC">{place.nic ? <Copy text={place.nic} label="NIC" /> : <span class="faint">unknown</span>}</Fact>
      <Fact word="Process">
        <Copy text={String(place.pid)} label="pid" />{" "}
        {place.gone_at ? (
          <b class="old">
            gone <Ago at={place.gone_at} />
          </b>
        ) : (
          place.process
        )}
      </Fact>
      {coordinates.length > 0 && (
        <Fact word="Place">{coordinates.map((name) => `${name} ${place[name]}`).join(", ")}</Fact>
      )}
      <Fact word="Transport">
        {place.transport === "Unknown" ? <span class="faint">unknown</span> : place.transport}
      </Fact>
      <Fact word="Data up to">
        <Ago at={at} never="nothing heard" />
      </Fact>
    </dl>
  );
}

function Mates({ id, place }: { id: number; place: RankPlace }) {
  const others = place.node_mates.filter((rank) => rank !== place.rank);
  return (
    <p class="number-links">
      <span class="faint">On the same node:</span>
      {others.length === 0 && <span class="faint">no other rank</span>}
      {others.slice(0, 16).map((rank) => (
        <a key={rank} href={rankHref(id, rank)}>
          rank {rank}
        </a>
      ))}
    </p>
  );
}

function Fact({ word, children }: { word: string; children: ComponentChildren }) {
  return (
    <div>
      <dt>{word}</dt>
      <dd>{children}</dd>
    </div>
  );
}

const unknown = <span class="faint">unknown</span>;

/** Ops inside a node are queued, but show no network flow when they end. */
const unseen = (row: InComm) => (row.n_enqueued === null ? unknown : <span class="faint">not visible</span>);

/** "507", "338 p2p" or "170 + 12 p2p"; null where it is not known. */
export function opsWords(collectives: number | null, p2p: number | null): string | null {
  if (collectives === null) return null;
  const said = [
    collectives > 0 || !p2p ? collectives.toLocaleString("en-US") : "",
    p2p ? `${p2p.toLocaleString("en-US")} p2p` : "",
  ];
  return said.filter(Boolean).join(" + ");
}

const IN_COMM: Column<InComm>[] = [
  { word: "Communicator", cell: (row) => (row.name ? row.name : <code>{row.comm_id}</code>) },
  { word: "Member", cell: (row) => `${row.comm_rank} of ${row.n_ranks || "?"}` },
  { word: "Ops queued", isNumber: true, cell: (row) => opsWords(row.n_enqueued, row.n_p2p_enqueued) ?? unknown },
  { word: "Ops done", isNumber: true, cell: (row) => opsWords(row.n_done, row.n_p2p_done) ?? unseen(row) },
  { word: "Last done", cell: (row) => <Ago at={row.last_done_at} never="unknown" /> },
  {
    word: "Kernel",
    title: "what the GPU itself tells of its newest op, where NCCL reports kernels (DIOGENES_KERNELS)",
    cell: (row) => row.kernel ?? unknown,
  },
];

function flowColumns(id: number): Column<FlowNow>[] {
  return [
    {
      word: "Flow",
      cell: (row) => (
        <>
          {row.direction === "send" ? "→" : "←"}{" "}
          {row.peer_rank >= 0 ? <a href={rankHref(id, row.peer_rank)}>rank {row.peer_rank}</a> : "unknown rank"}
        </>
      ),
    },
    { word: "Communicator", cell: (row) => `${row.comm_name} channel ${row.channel}` },
    { word: "Op", cell: (row) => `${row.func} ${row.op}` },
    {
      word: "Chunks",
      isNumber: true,
      title: "posted · ready or received · transmitted or flushed · done or consumed, of all",
      cell: (row) => `${row.counters.join(" · ")} of ${row.total_chunks}`,
    },
    {
      word: "Stands still",
      isNumber: true,
      class: (row) => (row.stuck_ms > STILL_MS ? "standing-still" : ""),
      cell: (row) => (row.stuck_ms > STILL_MS ? spanWords(row.stuck_ms) : "moves"),
    },
  ];
}
