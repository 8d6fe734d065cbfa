/*
 * Now: open incidents first, then every job with the age of its newest data, then how ingest is doing. When nothing is
 * wrong it says so, and since when and how recently anybody looked.
 */

import { useEffect } from "preact/hooks";
import type { IncidentRow, JobRow } from "../live/rows";
import { Ago, ConditionChip, Empty, JobStateMark, Loading } from "../parts/bits";
import { Failure } from "../parts/Failure";
import { IncidentCard } from "../parts/IncidentCard";
import { IngestHealth, rate } from "../parts/IngestHealth";
import { type Column, Table } from "../parts/Table";
import { go } from "../state/address";
import { pageTitle } from "../state/badge";
import { serverNow } from "../state/clock";
import { useSelection } from "../state/selection";
import { stateNow, type Wellness, wellness } from "../state/sight";
import { isLoud } from "../state/status";
import { liveIncidents, session, team } from "../state/team";
import { count } from "../state/words";

export function NowPage() {
  useEffect(() => {
    pageTitle.value = "Now";
  }, []);
  const live = liveIncidents.value.filter((row) => row.state !== "resolved");
  const unresolved = live.filter((row) => isLoud(row, serverNow()));
  const { chosen, choose } = useSelection(unresolved);
  const now = team.snapshot.value;
  if (!now && team.failure.value) return <Failure error={team.failure.value} again={() => void team.load()} />;
  if (!now) return <Loading what="what is going on" />;
  const recent = now.incidents.filter((row) => row.state === "resolved");
  return (
    <div class="page now">
      <h1 class="visually-hidden">Now</h1>
      <section aria-labelledby="open-incidents">
        <h2 id="open-incidents">{unresolved.length > 0 ? count(unresolved.length, "incident") : "Incidents"}</h2>
        {unresolved.map((row) => (
          <IncidentCard
            key={row.number}
            row={row}
            job={now.jobs.find((job) => job.id === row.job_id)}
            chosen={row.number === chosen}
            onChoose={() => choose(row.number)}
          />
        ))}
        <Quiet n={live.length - unresolved.length} />
        {unresolved.length === 0 && now.jobs.length > 0 && (
          <AllWell jobs={now.jobs} recent={recent} incidents={[...live, ...recent]} />
        )}
        {unresolved.length === 0 && now.jobs.length === 0 && <NothingYet />}
        {recent.length > 0 && <Recent rows={recent} jobs={now.jobs} />}
      </section>
      {now.jobs.length > 0 && <Jobs jobs={now.jobs} />}
      {now.ingest && <IngestHealth row={now.ingest} />}
    </div>
  );
}

/** What waits for nobody is one line: it must not push away what does. */
function Quiet({ n }: { n: number }) {
  if (n === 0) return null;
  return (
    <p class="faint quiet-incidents">
      <a href="/incidents?state=silenced,attached">{count(n, "incident")}</a> {n === 1 ? "is" : "are"} silenced or
      attached to another.
    </p>
  );
}

interface AllWellProps {
  jobs: JobRow[];
  recent: IncidentRow[];
  incidents: IncidentRow[];
}

function AllWell({ jobs, recent, incidents }: AllWellProps) {
  const well = wellness(jobs, serverNow());
  const last = recent
    .map((row) => row.resolved_at)
    .filter((at) => at !== null)
    .sort()
    .at(-1);
  return (
    <div class={`all-well ${well.isWell ? "" : "unsure"}`}>
      <svg viewBox="0 0 24 24" aria-hidden="true">
        {well.isWell ? <path d="M5 13l4.5 4.500L19 7.5" /> : <path d="M12 5v9M12 18v.5" />}
      </svg>
      <div>
        <p class="empty-title">{wellnessWords(well)}</p>
        <p>
          {count(well.watched.length, "job")} watched
          {well.watched.length > 0 && (
            <>
              , {well.watched.length > 1 ? "every one looked at since" : "looked at"}{" "}
              <Ago at={well.lookedAt} never="not yet" />
            </>
          )}
          .{" "}
          {last && (
            <>
              The last incident was resolved <Ago at={last} />.
            </>
          )}
        </p>
        {session.value?.demo && <DemoHint jobs={jobs} incidents={incidents} />}
      </div>
    </div>
  );
}

const DEMO_JOB = "demo";

/**
 * What comes next in the demo: its one fault is injected half a minute after its job starts, and lasts. Incidents of
 * earlier starts, and what people did to this one, say nothing about that.
 */
export function DemoHint({ jobs, incidents }: { jobs: readonly JobRow[]; incidents: readonly IncidentRow[] }) {
  const demo = jobs.find((job) => job.name === DEMO_JOB);
  const mine = incidents.filter((row) => row.job_id === demo?.id && row.attempt === demo.attempt);
  const isOver = !demo || demo.state === "ended";
  if (!isOver && mine.length === 0) {
    return (
      <p>
        This is the demo: a fault is injected about 30 s after the job starts. The incident then appears here by itself.
      </p>
    );
  }
  const lasting = mine.find((row) => row.condition !== "clear");
  if (!isOver && lasting) {
    return (
      <p>
        {lasting.condition === "firing"
          ? "The demo’s fault lasts: its job still hangs"
          : "The demo’s fault seems to pass"}
        , under <a href={`/incidents/${lasting.number}`}>incident {lasting.number}</a>.
      </p>
    );
  }
  return (
    <p>
      {isOver ? "The demo’s job is over." : "The demo’s fault is over."} What happened is under{" "}
      <a href="/incidents">Incidents</a>; start <code>make run</code> again for a new job and a new fault.
    </p>
  );
}

function wellnessWords({ watched, stuck, slow, unsure }: Wellness): string {
  const doubts = [
    stuck.length > 0 ? `${count(stuck.length, "job")} ${stuck.length === 1 ? "is" : "are"} stuck` : "",
    slow.length > 0 ? `${count(slow.length, "job")} ${slow.length === 1 ? "is" : "are"} slow` : "",
    unsure.length > 0 ? `${count(unsure.length, "job")} cannot be judged` : "",
  ].filter(Boolean);
  if (watched.length === 0) return "No open incidents; no job is running.";
  return doubts.length === 0 ? "No open incidents." : `No open incidents, but ${doubts.join(" and ")}.`;
}

function NothingYet() {
  return (
    <Empty title="No job has sent anything yet.">
      <p>Jobs appear here by themselves as soon as a node's agent reports. On every training node:</p>
      <ol class="steps">
        <li>
          Create an agent token under <a href="/settings">Settings</a>.
        </li>
        <li>
          Load the profiler plugin into the job: <code>export NCCL_PROFILER_PLUGIN=…/libnccl-profiler-diogenes.so</code>
        </li>
        <li>
          Start the agent: <code>python -m nccl_instrument.agent --server {location.origin} --token-file …</code>
        </li>
      </ol>
    </Empty>
  );
}

function Recent({ rows, jobs }: { rows: IncidentRow[]; jobs: JobRow[] }) {
  return (
    <ul class="recent" aria-label="Resolved in the last hour">
      {rows.map((row) => (
        <li key={row.number}>
          <a href={`/incidents/${row.number}`}>
            <span class="number">#{row.number}</span> {row.headline}
          </a>
          <span class="faint">
            resolved <Ago at={row.resolved_at} />
            {row.resolution ? `: ${row.resolution}` : ""}
          </span>
          <ConditionChip row={row} job={jobs.find((job) => job.id === row.job_id)} />
        </li>
      ))}
    </ul>
  );
}

/** A job's unresolved incident; of one that is still in trouble, else the newest: that resolved it does not end it. */
export function incidentOf(job: JobRow, incidents: readonly IncidentRow[]): number | null {
  if (job.incident !== null) return job.incident;
  if (!["stuck", "slow", "silent"].includes(job.state)) return null;
  const its = incidents.filter((row) => row.job_id === job.id && row.attempt === job.attempt);
  return its.length > 0 ? Math.max(...its.map((row) => row.number)) : null;
}

function JobName({ job }: { job: JobRow }) {
  const number = incidentOf(job, liveIncidents.value);
  return (
    <>
      <a href={`/jobs/${job.id}`}>{job.name}</a> <span class="faint">attempt {job.attempt}</span>
      {number !== null && (
        <a class="row-incident" href={`/incidents/${number}`}>
          #{number}
          {job.incident === null && " (resolved)"}
        </a>
      )}
    </>
  );
}

const COLUMNS: Column<JobRow>[] = [
  { word: "Job", cell: (job) => <JobName job={job} /> },
  { word: "State", cell: (job) => <JobStateMark job={job} /> },
  { word: "Ranks", isNumber: true, cell: (job) => <OutOf n={job.n_ranks} of={job.world_size} /> },
  { word: "Nodes", isNumber: true, cell: (job) => <OutOf n={job.nodes_reporting} of={job.n_nodes} /> },
  { word: "Ops", isNumber: true, cell: (job) => (job.ops_per_s === null ? <Unknown /> : `${rate(job.ops_per_s)}/s`) },
  { word: "Op interval", isNumber: true, cell: (job) => <OpInterval job={job} /> },
  {
    word: "Last data",
    isNumber: true,
    class: (job) => (isDataOld(job) ? "old" : ""),
    cell: (job) => <Ago at={job.last_data_at} />,
  },
  { word: "Last look", isNumber: true, cell: (job) => <Ago at={job.looked_at} never="not yet" /> },
];

function Jobs({ jobs }: { jobs: JobRow[] }) {
  return (
    <section aria-labelledby="jobs">
      <h2 id="jobs">Jobs</h2>
      <Table
        label="Jobs"
        isCards
        columns={COLUMNS}
        rows={jobs}
        rowKey={(job) => job.id}
        line={(job) => ({
          class: "clickable",
          onClick: (click) => (click.target as Element).closest("a") ?? go(`/jobs/${job.id}`),
        })}
      />
    </section>
  );
}

function OutOf({ n, of }: { n: number; of: number }) {
  return (
    <>
      {n}
      <span class="faint"> / {of}</span>
    </>
  );
}

const STALE_DATA_MS = 5000;

function isDataOld(job: JobRow): boolean {
  return (
    job.last_data_at !== null && serverNow() - Date.parse(job.last_data_at) > STALE_DATA_MS && job.state !== "ended"
  );
}

/** The usual interval; of a job that does not run it is said to be just that. */
export function OpInterval({ job }: { job: JobRow }) {
  if (job.op_interval_ms === null) return <Unknown />;
  const words = `${rate(job.op_interval_ms)} ms`;
  if (stateNow(job, serverNow()).state === "running") return <>{words}</>;
  return <span class="faint">usually {words}</span>;
}

export function Unknown() {
  return <span class="faint">unknown</span>;
}
