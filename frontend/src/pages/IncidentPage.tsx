/*
 * One incident: the verdict and who to call first, the clock, the picture (who waits for whom, topology, flows), then
 * tabs for evidence, activity, looks and the raw diagnosis. Selected rank and tab are in the URL.
 */

import { useEffect, useMemo, useState } from "preact/hooks";
import type { IncidentAnswer } from "../api";
import { RankLinks } from "../fleet/RankLinks";
import { Scrubber } from "../grid/Scrubber";
import { TopologyGrid } from "../grid/TopologyGrid";
import { useGridShown } from "../grid/useGridShown";
import { nodeNames } from "../grid/words";
import { Actions } from "../incident/Actions";
import { ActivityTab } from "../incident/ActivityTab";
import { ClockStrip } from "../incident/ClockStrip";
import { ComparedPanel } from "../incident/ComparedPanel";
import { IncidentDetail } from "../incident/detail";
import { NotSeen } from "../incident/NotSeen";
import { LooksOfJob, RawTab } from "../incident/OtherTabs";
import { pathDepth } from "../incident/path";
import { DiagnoseAgain, Verdict } from "../incident/Verdict";
import { WaitPath } from "../incident/WaitPath";
import { FlowLanes } from "../lanes/FlowLanes";
import { allGoOn } from "../lanes/standing";
import type { Snapshot } from "../live/apply";
import type { DumpsRow, IncidentRow } from "../live/rows";
import { Loading } from "../parts/bits";
import { Failure } from "../parts/Failure";
import { Ignored } from "../parts/Ignored";
import { later } from "../parts/later";
import { showTab, type Tab, Tabs } from "../parts/Tabs";
import { go, pinnedMoment, pinnedTime, query, selectedRank, selectRank, setQuery } from "../state/address";
import { pageTitle } from "../state/badge";
import { serverNow, timeOfDay, zoneLabel } from "../state/clock";
import { useKeys } from "../state/keys";
import { cameFrom, incidentHref } from "../state/list";
import { suspectsOf } from "../state/roles";
import { blindWords } from "../state/sight";
import { liveJob } from "../state/team";
import type { Diagnosis, Revision } from "../types";
import { Head, PinnedTime, useNeighbours } from "./IncidentHead";

const StandingPicture = later(
  async () => (await import("../lanes/StandingPicture")).StandingPicture,
  "who stood still",
);
const EvidenceTab = later(async () => (await import("../incident/EvidenceTab")).EvidenceTab, "evidence");
const WhyNot = later(async () => (await import("../incident/WhyNot")).WhyNot, "who else it could be");
const DumpTab = later(async () => (await import("../dumps/DumpTab")).DumpTab, "dumps");
const TakeTab = later(async () => (await import("../take/TakeTab")).TakeTab, "what can be taken away");
const NetworkPanel = later(async () => (await import("../network/NetworkPanel")).NetworkPanel, "the network");
const StagesPanel = later(async () => (await import("../stages/StagesPanel")).StagesPanel, "stages");

export function IncidentPage({ number }: { number: number }) {
  const detail = useMemo(() => new IncidentDetail(number), [number]);
  const rank = selectedRank();
  useEffect(() => detail.follow(selectedRank()), [detail]);
  useEffect(() => detail.showRank(rank), [detail, rank]);
  const time = pinnedTime();
  useEffect(() => detail.pinTime(time), [detail, String(time)]);
  const moment = pinnedMoment();
  useEffect(() => detail.pinMoment(moment), [detail, moment, detail.answer.value === null]);
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
  const [isCommentAsked, askComment] = useState(false);
  const row = snapshot.incidents[0];
  const { diagnosis } = answer;
  const job = liveJob(row.job_id) ?? answer.job;
  const blind = row.state === "resolved" ? null : blindWords(row, job, serverNow());
  const culprits = row.culprits.length > 0 ? row.culprits : (diagnosis?.findings[0]?.culprits ?? []);
  const tabs = tabsOf({ row, answer, snapshot, isCommentAsked, askComment, rank, dumps: detail.dumps.value });
  const places = detail.places.value;
  const at = detail.scrub.at.value;
  const pin = at === null ? null : at * 1e6;
  const nodeOf = useMemo(() => nodeNames(places), [places]);
  const comment = () => {
    showTab(tabs, "activity");
    askComment(true);
  };
  const { previous, next } = useNeighbours(answer);
  useKeys({
    // The list shows the newest first: j leads down it, as there.
    j: () => previous !== null && go(incidentHref(previous, cameFrom())),
    k: () => next !== null && go(incidentHref(next, cameFrom())),
    ...Object.fromEntries(tabs.map((tab, n) => [String((n + 1) % 10), () => showTab(tabs, tab.id)])),
  });
  return (
    <div class="page incident">
      <Head row={row} answer={answer} job={job} previous={previous} next={next} lanes={detail.lanes.value} />
      <Ignored nRanks={job.world_size} rank={rank} />
      <div class="incident-top">
        <Verdict
          row={row}
          diagnosis={diagnosis}
          grid={places}
          seenBefore={answer.seen_before}
          onSelect={selectRank}
          links={<RankLinks jobId={row.job_id} ranks={shownRanks(culprits, rank)} nodeOf={nodeOf} />}
        >
          <DiagnoseAgain
            row={row}
            mayDiagnose={answer.may.includes("diagnose")}
            isAsked={answer.asked_at !== null}
            timeline={snapshot.timeline}
            onActed={() => detail.refreshMay()}
          />
        </Verdict>
        <div class="action-bar">
          <Actions
            row={row}
            may={answer.may}
            assignable={answer.assignable}
            review={answer.review}
            onActed={() => detail.refreshMay()}
            onComment={comment}
          />
        </div>
      </div>
      <ClockStrip row={row} timeline={snapshot.timeline} />
      <NotSeen
        title={notSeenTitle(answer.revisions)}
        missing={diagnosis?.missing ?? []}
        downgraded={diagnosis?.downgraded ?? []}
      />
      {blind && (
        <p class="warning blind">
          {sentence(blind)}
          {at === null && " Topology and flows show what was known then."}
        </p>
      )}
      {detail.pinned.value && (
        <PinnedTime time={detail.pinned.value} onFree={() => setQuery({ from: null, to: null })} />
      )}
      <Scrubber scrub={detail.scrub} beat={beatOf(answer, snapshot, detail.dumps.value)} />
      <div class={`pictures ${besides(detail)} ${blind && at === null ? "blind" : ""}`}>
        {diagnosis && <WaitPath diagnosis={diagnosis} culprits={culprits} nodeOf={nodeOf} pin={at} />}
        <Topology detail={detail} rank={rank} />
        {diagnosis && <UsualAndNow diagnosis={diagnosis} />}
        {detail.standing.value && (
          <StandingPicture
            standing={detail.standing.value}
            lanes={detail.lanes.value}
            culprits={culprits}
            diagnosis={diagnosis}
            nodeOf={nodeOf}
            onSelect={selectRank}
            pin={pin}
          />
        )}
        {detail.lanes.value && (
          <FlowLanes
            lanes={detail.lanes.value}
            selected={rank}
            culprits={culprits}
            diagnosis={diagnosis}
            nodeOf={nodeOf}
            onSelect={selectRank}
            allGoOn={detail.standing.value !== null && allGoOn(detail.standing.value)}
            time={detail.lanesTime.value}
            onTime={(time) => detail.showTime(time)}
            onMore={detail.mayShowMoreFlows ? () => detail.showMoreFlows() : undefined}
            pin={pin}
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

/** By itself, as frames change it ten times as often as the rest of the page. */
function Topology({ detail, rank }: { detail: IncidentDetail; rank: number | null }) {
  const { columns, when } = useGridShown(detail.scrub, detail.grid.value);
  if (!columns) return null;
  return (
    <TopologyGrid columns={columns} selected={rank} onSelect={selectRank} when={when} source={detail.scrub.source} />
  );
}

/** Another moment may have come to mark on the time scrubber. */
function beatOf(answer: IncidentAnswer, { timeline }: Snapshot, dumps: DumpsRow | null): string {
  return `${answer.diagnosis_id} ${timeline.length} ${dumps?.request ?? ""}`;
}

function sentence(words: string): string {
  return `${words.charAt(0).toUpperCase()}${words.slice(1)}.`;
}

/** The first culprits, and the rank that is selected. */
function shownRanks(culprits: readonly number[], rank: number | null): number[] {
  return [...new Set([...culprits.slice(0, 2), ...(rank === null ? [] : [rank])])];
}

const SIDE_BY_SIDE_MAX = 64;

/** A small job's path and grid fit side by side: the farther out the waiting goes, the more of the width is the path's. */
function besides(detail: IncidentDetail): string {
  const [grid, diagnosis] = [detail.places.value, detail.answer.value?.diagnosis];
  const isAlone = query.value.get("grid") === "table" || !diagnosis || diagnosis.path.length === 0;
  if (isAlone || !grid || grid.rank.length > SIDE_BY_SIDE_MAX) return "";
  const depth = pathDepth(suspectsOf(diagnosis.findings[0]), diagnosis.path);
  return depth <= 2 ? "compact" : depth <= 4 ? "compact path-wide" : "";
}

/** Where the time of the slow op goes, and the job's usual against now, side by side. */
function UsualAndNow({ diagnosis: { findings, compared } }: { diagnosis: Diagnosis }) {
  const parts = findings[0]?.parts ?? [];
  const whose = findings[0]?.culprits[0];
  if (parts.length + compared.length === 0) return null;
  return (
    <div class="usual-and-now">
      <ComparedPanel
        id="parts"
        title="Where the slow op’s time goes"
        hint={
          whose === undefined
            ? "part by part"
            : `of rank ${whose} in an iteration, summed over its flows; hatched: grew most of its own`
        }
        rows={parts}
        marksWorst
      />
      <ComparedPanel id="compared" title="Normal against now" hint="of the whole job" rows={compared} />
    </div>
  );
}

interface TabsOf {
  row: IncidentRow;
  answer: IncidentAnswer;
  snapshot: Snapshot;
  isCommentAsked: boolean;
  askComment: (isAsked: boolean) => void;
  rank: number | null;
  dumps: DumpsRow | null;
}

function tabsOf({ row, answer, snapshot, isCommentAsked, askComment, rank, dumps }: TabsOf): Tab[] {
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
      word: `Activity ${(snapshot.timeline.length + (answer.timeline_left_out ?? 0)).toLocaleString("en")}`,
      content: () => (
        <ActivityTab
          row={row}
          timeline={snapshot.timeline}
          older={answer.timeline_left_out ?? 0}
          mayComment={answer.may.includes("comment")}
          isAsked={isCommentAsked}
          onFocused={() => askComment(false)}
        />
      ),
    },
    {
      id: "stages",
      word: "Stages",
      content: () => (
        <StagesPanel source={`incidents/${row.number}`} jobId={row.job_id} beat={answer.diagnosis_id ?? 0} />
      ),
    },
    {
      id: "network",
      word: "Network",
      content: () => (
        <NetworkPanel source={`incidents/${row.number}`} jobId={row.job_id} beat={answer.diagnosis_id ?? 0} />
      ),
    },
    { id: "looks", word: "Looks", content: () => <LooksOfJob id={row.job_id} /> },
    {
      id: "take",
      word: "Take away",
      content: () => <TakeTab number={row.number} beat={`${answer.diagnosis_id} ${snapshot.timeline.length}`} />,
    },
    { id: "raw", word: "Raw", content: () => <RawTab answer={answer} /> },
  ];
}

/** With the time of the diagnosis it belongs to: what is caught up later is no longer missing. */
export function notSeenTitle(revisions: Revision[]): string {
  const [newest] = revisions;
  return newest ? `What was not seen at ${timeOfDay(Date.parse(newest.at))} ${zoneLabel()}` : "What was not seen";
}
