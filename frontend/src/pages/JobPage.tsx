/* One job: its ranks, its throughput, what the trigger saw at every look, and its incidents. */

import type { ComponentChildren } from "preact";
import { useEffect, useMemo } from "preact/hooks";
import { type JobAnswer, readJob, readJobGrid, readThroughput } from "../api";
import { DumpTab } from "../dumps/DumpTab";
import { RankLinks } from "../fleet/RankLinks";
import { Scrubber } from "../grid/Scrubber";
import { Scrub } from "../grid/scrub";
import { TopologyGrid } from "../grid/TopologyGrid";
import { useGridShown } from "../grid/useGridShown";
import { nodeNames } from "../grid/words";
import type { JobRow } from "../live/rows";
import { Ago, Empty, JobStateMark, Loading, StateChip } from "../parts/bits";
import { Failure } from "../parts/Failure";
import { Figure } from "../parts/Figure";
import { later } from "../parts/later";
import { type Tab, Tabs } from "../parts/Tabs";
import type { Answered } from "../parts/useAnswer";
import { usePolled } from "../parts/usePolled";
import { selectedRank, selectRank } from "../state/address";
import { pageTitle } from "../state/badge";
import { team } from "../state/team";
import type { PlotlyFigure } from "../types";
import { JobActs } from "./JobActs";
import { OpInterval, Unknown } from "./NowPage";

const NetworkPanel = later(async () => (await import("../network/NetworkPanel")).NetworkPanel, "the network");
const OverTime = later(async () => (await import("../fleet/OverTime")).OverTime, "the charts");
const AllLooks = later(async () => (await import("../fleet/AllLooks")).AllLooks, "looks");
const StagesPanel = later(async () => (await import("../stages/StagesPanel")).StagesPanel, "stages");
const REFRESH_MS = 5000;

export function JobPage({ id }: { id: number }) {
  const asked = usePolled(`job ${id}`, () => readJob(id), REFRESH_MS);
  const gridAsked = usePolled(`grid ${id}`, () => readJobGrid(id), REFRESH_MS);
  const figureAsked = usePolled(`throughput ${id}`, () => readThroughput(id), REFRESH_MS);
  const [answer, grid, load] = [asked.value, gridAsked.value, asked.again];
  const scrub = useMemo(() => new Scrub(`jobs/${id}`), [id]);
  useEffect(() => scrub.follow(), [scrub]);
  const then = useGridShown(scrub, grid);
  const job = team.snapshot.value?.jobs.find((one) => one.id === id) ?? answer?.job;
  useEffect(() => {
    pageTitle.value = job?.name ?? "Job";
  }, [job?.name]);
  if (asked.failure && !answer) return <Failure error={asked.failure} again={load} />;
  if (!job || !answer) return <Loading what="the job" />;
  return (
    <div class="page job">
      <JobHead job={job}>
        <JobActs job={job} may={answer.may} pause={answer.pause} wanted={answer.wanted_pace} onActed={load} />
      </JobHead>
      {asked.failure && (
        <p class="warning">{asked.failure.message} What stands here of looks and incidents is older.</p>
      )}
      <Scrubber scrub={scrub} beat={answer.incidents.map(({ number }) => number).join()} />
      {then.columns && (
        <TopologyGrid
          columns={then.columns}
          selected={selectedRank()}
          onSelect={selectRank}
          when={then.when}
          source={scrub.source}
        />
      )}
      {gridAsked.failure && (
        <p class="warning">
          Topology: {gridAsked.failure.message}
          {grid && " What stands here is older."}
        </p>
      )}
      {grid && <RankLinks jobId={id} ranks={chosen()} nodeOf={nodeNames(grid)} />}
      <section class="panel" aria-labelledby="throughput">
        <div class="panel-head">
          <h2 id="throughput">Throughput</h2>
        </div>
        <Throughput asked={figureAsked} />
      </section>
      <OverTime id={id} beat={everyMinute(answer.job.last_data_at)} />
      <JobIncidents answer={answer} />
      <Tabs tabs={tabsOf(id, answer)} label="More about this job" />
    </div>
  );
}

function Throughput({ asked: { value, failure, again } }: { asked: Answered<PlotlyFigure> }) {
  if (value) return <Figure figure={value} label="Op throughput of the job" />;
  return failure ? <Failure error={failure} again={again} /> : <Loading what="the chart" />;
}

/** Half a minute of many nodes is read for it: not every second. */
const every15s = (at: string | null) => (at === null ? 0 : Math.floor(Date.parse(at) / 15_000));

/** Stacks and recordings of a job can be looked at before there is an incident. */
function tabsOf(id: number, answer: JobAnswer): Tab[] {
  const dumpTab = (kind: "stacks" | "recorder") => () => (
    <DumpTab key={kind} kind={kind} source={`jobs/${id}`} row={null} selected={selectedRank()} onSelect={selectRank} />
  );
  return [
    { id: "looks", word: "Looks", content: () => <AllLooks id={id} /> },
    {
      id: "stages",
      word: "Stages",
      content: () => <StagesPanel source={`jobs/${id}`} jobId={id} beat={answer.job.last_data_at ?? ""} />,
    },
    {
      id: "network",
      word: "Network",
      content: () => <NetworkPanel source={`jobs/${id}`} jobId={id} beat={every15s(answer.job.last_data_at)} />,
    },
    { id: "stacks", word: "Stacks", content: dumpTab("stacks") },
    { id: "recorder", word: "Flight Recorder", content: dumpTab("recorder") },
  ];
}

const everyMinute = (at: string | null) => (at === null ? 0 : Math.floor(Date.parse(at) / 60_000));

const chosen = () => [selectedRank()].filter((rank) => rank !== null);

function JobHead({ job, children }: { job: JobRow; children: ComponentChildren }) {
  return (
    <div class="job-head">
      <h1>
        {job.name} <span class="faint">attempt {job.attempt}</span>
      </h1>
      <dl class="facts">
        <Fact word="State">
          <JobStateMark job={job} />
        </Fact>
        <Fact word="Ranks reporting">
          {job.n_ranks} of {job.world_size}
        </Fact>
        <Fact word="Nodes reporting">
          {job.nodes_reporting} of {job.n_nodes}
        </Fact>
        <Fact word="Ops">{job.ops_per_s === null ? <Unknown /> : `${job.ops_per_s.toFixed(1)}/s`}</Fact>
        <Fact word="Op interval">
          <OpInterval job={job} />
        </Fact>
        <Fact word="Last data">
          <Ago at={job.last_data_at} />
        </Fact>
        <Fact word="Last look">
          <Ago at={job.looked_at} never="not yet" />
        </Fact>
      </dl>
      {children}
    </div>
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

function JobIncidents({ answer }: { answer: JobAnswer }) {
  return (
    <section class="panel" aria-labelledby="job-incidents">
      <div class="panel-head">
        <h2 id="job-incidents">Incidents</h2>
      </div>
      {answer.incidents.length === 0 ? (
        <Empty title="This job has had no incident." />
      ) : (
        <ul class="job-incidents">
          {answer.incidents.map((row) => (
            <li key={row.number}>
              <StateChip row={row} />
              <a href={`/incidents/${row.number}`}>
                <span class="number">#{row.number}</span> {row.headline}
              </a>
              <span class="faint">
                <Ago at={row.opened_at} />
              </span>
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}
