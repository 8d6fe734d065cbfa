/* One node: which jobs run there, its ranks, the traffic of its NICs, its incidents, and how often it was blamed. */

import { useEffect } from "preact/hooks";
import type { IncidentRow } from "../live/rows";
import { NODE_COLUMNS } from "../pages/NodesPage";
import { Ago, Loading, StateChip } from "../parts/bits";
import { Failure } from "../parts/Failure";
import { Figure } from "../parts/Figure";
import { type Column, Table } from "../parts/Table";
import { useAnswer } from "../parts/useAnswer";
import { pageTitle } from "../state/badge";
import { session } from "../state/team";
import { Blamed } from "./Blamed";
import { type RankOnNode, rankHref, readNode } from "./calls";
import { useBeat } from "./RankPage";
import "./fleet.css";

export function NodePage({ name }: { name: string }) {
  const { value, failure, again } = useAnswer(`node ${name}`, () => readNode(name), useBeat());
  useEffect(() => {
    pageTitle.value = name;
  }, [name]);
  if (failure && !value) return <Failure error={failure} again={again} />;
  if (!value) return <Loading what={name} />;
  const mayAct = session.value?.role && session.value.role !== "viewer";
  return (
    <div class="page node-page">
      <div class="list-head">
        <h1>
          {name} <span class="faint">node</span>
        </h1>
        <div class="head-acts">
          <a href={`/incidents?node=${encodeURIComponent(name)}`}>Incidents here</a>
          {mayAct && <a href={`/silences?new=maintenance&node=${encodeURIComponent(name)}`}>Maintenance …</a>}
        </div>
      </div>
      <Table
        label="Attempts on this node"
        isCards
        columns={NODE_COLUMNS.slice(1)}
        rows={value.nodes}
        rowKey={(row) => `${row.job} ${row.attempt}`}
      />
      <section class="group" aria-labelledby="ranks-here">
        <h2 id="ranks-here">Ranks</h2>
        {value.ranks.length === 0 && <p class="faint">No rank of it is known.</p>}
        {value.ranks.length > 0 && (
          <Table
            label="Ranks"
            isCards
            columns={RANKS}
            rows={value.ranks}
            rowKey={(row, n) => `${row.job_id} ${row.attempt} ${row.rank} ${n}`}
          />
        )}
      </section>
      <section class="panel" aria-labelledby="nic-traffic">
        <div class="panel-head">
          <h2 id="nic-traffic">Traffic of its NICs</h2>
        </div>
        {value.traffic.data.length > 0 ? (
          <Figure figure={value.traffic} label={`Traffic of the NICs of ${name}`} />
        ) : (
          <p class="faint">{value.traffic.text}</p>
        )}
      </section>
      <Blamed blamed={value.blamed} />
      <Incidents rows={value.incidents} />
    </div>
  );
}

const RANKS: Column<RankOnNode>[] = [
  {
    word: "Rank",
    cell: (row) =>
      row.is_newest && row.rank >= 0 ? (
        <a href={rankHref(row.job_id, row.rank)}>rank {row.rank}</a>
      ) : (
        `rank ${row.rank}`
      ),
  },
  {
    word: "Job",
    cell: (row) => (
      <>
        <a href={`/jobs/${row.job_id}`}>{row.job}</a> <span class="faint">attempt {row.attempt}</span>
      </>
    ),
  },
  { word: "GPU", cell: (row) => row.gpu_uuid || row.gpu || (row.local_rank >= 0 ? row.local_rank : "unknown") },
  { word: "NIC", cell: (row) => row.nic || <span class="faint">unknown</span> },
  { word: "Pid", isNumber: true, cell: (row) => row.pid },
  {
    word: "Process",
    cell: (row) => (row.gone_at ? <b class="old">gone</b> : row.is_newest ? "has not ended" : "of an older attempt"),
  },
];

function Incidents({ rows }: { rows: IncidentRow[] }) {
  return (
    <section class="panel" aria-labelledby="node-incidents">
      <div class="panel-head">
        <h2 id="node-incidents">Incidents that began here</h2>
      </div>
      {rows.length === 0 && <p class="faint">None.</p>}
      <ul class="job-incidents">
        {rows.map((row) => (
          <li key={row.number}>
            <StateChip row={row} />
            <a href={`/incidents/${row.number}`}>
              <span class="number">#{row.number}</span> {row.headline}
            </a>
            <span class="faint">
              {row.job} <Ago at={row.opened_at} />
            </span>
          </li>
        ))}
      </ul>
    </section>
  );
}
