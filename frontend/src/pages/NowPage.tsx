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
import { ScrollBox } from "../parts/ScrollBox";
import { go } from "../state/address";
import { pageTitle } from "../state/badge";
import { serverNow } from "../state/clock";
import { useSelection } from "../state/selection";
import { stateNow, type Wellness, wellness } from "../state/sight";
import { liveIncidents, session, team } from "../state/team";
import { count } from "../state/words";

export function NowPage() {
  useEffect(() => {
    pageTitle.value = "Now";
  }, []);
  const unresolved = liveIncidents.value.filter((row) => row.state !== "resolved");
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
        {unresolved.length === 0 && now.jobs.length > 0 && <AllWell jobs={now.jobs} recent={recent} />}
        {unresolved.length === 0 && now.jobs.length === 0 && <NothingYet />}
        {recent.length > 0 && <Recent rows={recent} jobs={now.jobs} />}
      </section>
      {now.jobs.length > 0 && <Jobs jobs={now.jobs} />}
      {now.ingest && <IngestHealth row={now.ingest} />}
    </div>
  );
}

function AllWell({ jobs, recent }: { jobs: JobRow[]; recent: IncidentRow[] }) {
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
        {session.value?.demo && (
          <p>
            This is the demo: a fault is injected about 30 s after the job starts. The incident then appears here by
            itself.
          </p>
        )}
      </div>
    </div>
  );
}

function wellnessWords({ watched, stuck, unsure }: Wellness): string {
  const doubts = [
    stuck.length > 0 ? `${count(stuck.length, "job")} ${stuck.length === 1 ? "is" : "are"} stuck` : "",
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

function Jobs({ jobs }: { jobs: JobRow[] }) {
  return (
    <section aria-labelledby="jobs">
      <h2 id="jobs">Jobs</h2>
      <ScrollBox class="table-box cards" label="Jobs">
        <table>
          <thead>
            <tr>
              <th scope="col">Job</th>
              <th scope="col">State</th>
              <th scope="col" class="num">
                Ranks
              </th>
              <th scope="col" class="num">
                Nodes
              </th>
              <th scope="col" class="num">
                Ops
              </th>
              <th scope="col" class="num">
                Op interval
              </th>
              <th scope="col" class="num">
                Last data
              </th>
              <th scope="col" class="num">
                Last look
              </th>
            </tr>
          </thead>
          <tbody>
            {jobs.map((job) => (
              <JobLine key={job.id} job={job} />
            ))}
          </tbody>
        </table>
      </ScrollBox>
    </section>
  );
}

const STALE_DATA_MS = 5000;

function JobLine({ job }: { job: JobRow }) {
  const old = job.last_data_at && serverNow() - Date.parse(job.last_data_at) > STALE_DATA_MS && job.state !== "ended";
  return (
    <tr class="clickable" onClick={(click) => (click.target as Element).closest("a") ?? go(`/jobs/${job.id}`)}>
      <th scope="row">
        <a href={`/jobs/${job.id}`}>{job.name}</a> <span class="faint">attempt {job.attempt}</span>
        {job.incident !== null && (
          <a class="row-incident" href={`/incidents/${job.incident}`}>
            #{job.incident}
          </a>
        )}
      </th>
      <td data-word="State">
        <JobStateMark job={job} />
      </td>
      <td class="num" data-word="Ranks">
        {job.n_ranks}
        <span class="faint"> / {job.world_size}</span>
      </td>
      <td class="num" data-word="Nodes">
        {job.nodes_reporting}
        <span class="faint"> / {job.n_nodes}</span>
      </td>
      <td class="num" data-word="Ops">
        {job.ops_per_s === null ? <Unknown /> : `${rate(job.ops_per_s)}/s`}
      </td>
      <td class="num" data-word="Op interval">
        <OpInterval job={job} />
      </td>
      <td class={`num ${old ? "old" : ""}`} data-word="Last data">
        <Ago at={job.last_data_at} />
      </td>
      <td class="num" data-word="Last look">
        <Ago at={job.looked_at} never="not yet" />
      </td>
    </tr>
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
