/*
 * One incident: the verdict and who to call first, the clock, the picture (who waits for whom, topology, flows), then
 * tabs for evidence, activity, looks and the raw diagnosis. Selected rank and tab are in the URL.
 */

import { useEffect, useMemo, useState } from "preact/hooks";
import type { IncidentAnswer } from "../api";
import { TopologyGrid } from "../grid/TopologyGrid";
import { nodeNames } from "../grid/words";
import { Actions } from "../incident/Actions";
import { ActivityTab } from "../incident/ActivityTab";
import { ClockStrip } from "../incident/ClockStrip";
import { ComparedPanel } from "../incident/ComparedPanel";
import { IncidentDetail } from "../incident/detail";
import { EvidenceTab } from "../incident/EvidenceTab";
import { NotSeen } from "../incident/NotSeen";
import { LooksOfJob, RawTab } from "../incident/OtherTabs";
import { pathDepth } from "../incident/path";
import { DiagnoseAgain, Verdict } from "../incident/Verdict";
import { WaitPath } from "../incident/WaitPath";
import { WhyNot } from "../incident/WhyNot";
import { FlowLanes } from "../lanes/FlowLanes";
import type { Snapshot } from "../live/apply";
import type { DumpsRow, IncidentRow, JobRow } from "../live/rows";
import { Ago, ConditionChip, Loading, StateChip } from "../parts/bits";
import { Failure } from "../parts/Failure";
import { later } from "../parts/later";
import { showTab, type Tab, Tabs } from "../parts/Tabs";
import { go, query, selectedRank, selectRank } from "../state/address";
import { pageTitle } from "../state/badge";
import { serverNow, timeOfDay, zoneLabel } from "../state/clock";
import { useKeys } from "../state/keys";
import { blindWords } from "../state/sight";
import { liveJob } from "../state/team";
import { SYMPTOM, worded } from "../state/words";
import type { Diagnosis, Revision } from "../types";

const DumpTab = later(async () => (await import("../dumps/DumpTab")).DumpTab, "dumps");

export function IncidentPage({ number }: { number: number }) {
  const detail = useMemo(() => new IncidentDetail(number), [number]);
  const rank = selectedRank();
  useEffect(() => detail.follow(selectedRank()), [detail]);
  useEffect(() => detail.showRank(rank), [detail, rank]);
  useEffect(() => {
    pageTitle.value = `Incident ${number}`;
  }, [number]);
  const answer = detail.answer.value;
  const snapshot = detail.stream.snapshot.value;
  if (!answer || !snapshot) {
    const failure = detail.stream.failure.value;
    return failure ? (
      <Failure error={failure} again={() => void detail.stream.load()} />
    ) : (
      <Loading what={`incident ${number}`} />
    );
  }
  return <Loaded detail={detail} answer={answer} snapshot={snapshot} rank={rank} />;
}

interface LoadedProps {
  detail: IncidentDetail;
  answer: IncidentAnswer;
  snapshot: Snapshot;
  rank: number | null;
}

function Loaded({ detail, answer, snapshot, rank }: LoadedProps) {
  const [focusComment, setFocusComment] = useState(0);
  const row = snapshot.incidents[0];
  const { diagnosis } = answer;
  const job = liveJob(row.job_id) ?? answer.job;
  const blind = row.state === "resolved" ? null : blindWords(row, job, serverNow());
  const culprits = row.culprits.length > 0 ? row.culprits : (diagnosis?.findings[0]?.culprits ?? []);
  const tabs = tabsOf({ row, answer, snapshot, focusComment, rank, dumps: detail.dumps.value });
  const grid = detail.grid.value;
  const nodeOf = useMemo(() => nodeNames(grid), [grid]);
  const comment = () => {
    showTab(tabs, "activity");
    setFocusComment((n) => n + 1);
  };
  useKeys({
    j: () => answer.next !== null && go(`/incidents/${answer.next}`),
    k: () => answer.previous !== null && go(`/incidents/${answer.previous}`),
    ...Object.fromEntries(tabs.map((tab, n) => [String(n + 1), () => showTab(tabs, tab.id)])),
  });
  return (
    <div class="page incident">
      <Head row={row} answer={answer} job={job} />
      <div class="incident-top">
        <Verdict row={row} diagnosis={diagnosis} grid={grid} seenBefore={answer.seen_before} onSelect={selectRank}>
          <DiagnoseAgain
            row={row}
            mayDiagnose={answer.may.includes("diagnose")}
            isAsked={answer.asked_at !== null}
            onActed={() => detail.refreshMay()}
          />
        </Verdict>
        <div class="action-bar">
          <Actions row={row} may={answer.may} onActed={() => detail.refreshMay()} onComment={comment} />
        </div>
      </div>
      <ClockStrip row={row} />
      <NotSeen
        title={notSeenTitle(answer.revisions)}
        missing={diagnosis?.missing ?? []}
        downgraded={diagnosis?.downgraded ?? []}
      />
      {blind && <p class="warning blind">{sentence(blind)} Topology and flows show what was known then.</p>}
      <div class={`pictures ${besides(detail, culprits)} ${blind ? "blind" : ""}`}>
        {diagnosis && <WaitPath diagnosis={diagnosis} culprits={culprits} nodeOf={nodeOf} />}
        {detail.grid.value && <TopologyGrid columns={detail.grid.value} selected={rank} onSelect={selectRank} />}
        {diagnosis && <UsualAndNow diagnosis={diagnosis} />}
        {detail.lanes.value && (
          <FlowLanes
            lanes={detail.lanes.value}
            selected={rank}
            culprits={culprits}
            diagnosis={diagnosis}
            nodeOf={nodeOf}
            onSelect={selectRank}
            onWhyNot={() => {
              showTab(tabs, "why-not");
              document.getElementById("tab-why-not")?.focus();
            }}
          />
        )}
        {detail.pictureFailure.value && <p class="warning">Topology and flows: {detail.pictureFailure.value}</p>}
      </div>
      <Tabs tabs={tabs} label="More about this incident" />
    </div>
  );
}

function sentence(words: string): string {
  return `${words.charAt(0).toUpperCase()}${words.slice(1)}.`;
}

const SIDE_BY_SIDE_MAX = 64;

/** A small job's path and grid fit side by side: the farther out the waiting goes, the more of the width is the path's. */
function besides(detail: IncidentDetail, culprits: readonly number[]): string {
  const [grid, diagnosis] = [detail.grid.value, detail.answer.value?.diagnosis];
  const isAlone = query.value.get("grid") === "table" || !diagnosis || diagnosis.path.length === 0;
  if (isAlone || !grid || grid.rank.length > SIDE_BY_SIDE_MAX) return "";
  const depth = pathDepth(culprits, diagnosis.path);
  return depth <= 2 ? "compact" : depth <= 4 ? "compact path-wide" : "";
}

/** Where the time of the slow op goes, and the job's usual against now, side by side. */
function UsualAndNow({ diagnosis: { findings, compared } }: { diagnosis: Diagnosis }) {
  const parts = findings[0]?.parts ?? [];
  if (parts.length + compared.length === 0) return null;
  return (
    <div class="usual-and-now">
      <ComparedPanel id="parts" title="Where the slow op’s time goes" hint="part by part" rows={parts} marksWorst />
      <ComparedPanel id="compared" title="Normal against now" hint="of the whole job" rows={compared} />
    </div>
  );
}

interface TabsOf {
  row: IncidentRow;
  answer: IncidentAnswer;
  snapshot: Snapshot;
  focusComment: number;
  rank: number | null;
  dumps: DumpsRow | null;
}

function tabsOf({ row, answer, snapshot, focusComment, rank, dumps }: TabsOf): Tab[] {
  const dumpTab = (kind: "stacks" | "recorder") => () => (
    <DumpTab
      key={kind}
      kind={kind}
      source={`incidents/${row.number}`}
      row={dumps}
      selected={rank}
      onSelect={selectRank}
    />
  );
  return [
    {
      id: "evidence",
      word: "Evidence",
      content: () => <EvidenceTab diagnosis={answer.diagnosis} revisions={answer.revisions} />,
    },
    { id: "stacks", word: "Stacks", content: dumpTab("stacks") },
    { id: "recorder", word: "Flight Recorder", content: dumpTab("recorder") },
    {
      id: "why-not",
      word: "Why not …?",
      content: () => (
        <WhyNot
          number={row.number}
          diagnosis={answer.diagnosis}
          revision={answer.diagnosis_id ?? 0}
          rank={rank}
          onSelect={selectRank}
        />
      ),
    },
    {
      id: "activity",
      word: `Activity ${snapshot.timeline.length}`,
      content: () => (
        <ActivityTab
          row={row}
          timeline={snapshot.timeline}
          mayComment={answer.may.includes("comment")}
          focusComment={focusComment}
        />
      ),
    },
    { id: "looks", word: "Looks", content: () => <LooksOfJob id={row.job_id} /> },
    { id: "raw", word: "Raw", content: () => <RawTab answer={answer} /> },
  ];
}

function Head({ row, answer, job }: { row: IncidentRow; answer: IncidentAnswer; job: JobRow }) {
  return (
    <div class="incident-head">
      <StateChip state={row.state} />
      <ConditionChip row={row} job={job} />
      <span>
        <b>#{row.number}</b> {worded(SYMPTOM, row.symptom)} in <a href={`/jobs/${row.job_id}`}>{row.job}</a>{" "}
        <span class="faint">attempt {row.attempt}</span>
      </span>
      <span class="faint">
        opened <Ago at={row.opened_at} />
      </span>
      {row.state === "acknowledged" && (
        <span>
          <b>{row.acknowledged_by}</b> has it, <Ago at={row.acknowledged_at} />
        </span>
      )}
      {row.state === "resolved" && (
        <span>
          resolved <Ago at={row.resolved_at} />
          {row.resolution ? `: ${row.resolution}` : ""}
        </span>
      )}
      {!answer.pages && row.state !== "resolved" && (
        <span class="tag" title="It waits for evidence that nothing harmless explains it.">
          pages nobody yet{answer.dumps_wanted.includes("stacks") ? ": stacks are asked for first" : ""}
        </span>
      )}
      {row.regressed && <span class="tag">came back after it was resolved</span>}
      {row.recurrence_of !== null && (
        <a class="tag" href={`/incidents/${row.recurrence_of}`}>
          happened before: #{row.recurrence_of}
        </a>
      )}
      <nav class="neighbours" aria-label="Other incidents">
        <Neighbour number={answer.previous} word="Previous incident" sign="‹" />
        <Neighbour number={answer.next} word="Next incident" sign="›" />
      </nav>
    </div>
  );
}

function Neighbour({ number, word, sign }: { number: number | null; word: string; sign: string }) {
  if (number === null) return null;
  return (
    <a href={`/incidents/${number}`} aria-label={`${word}, ${number}`} title={word}>
      {sign} #{number}
    </a>
  );
}

/** With the time of the diagnosis it belongs to: what is caught up later is no longer missing. */
export function notSeenTitle(revisions: Revision[]): string {
  const [newest] = revisions;
  return newest ? `What was not seen at ${timeOfDay(Date.parse(newest.at))} ${zoneLabel()}` : "What was not seen";
}
