/* The tabs Stacks and Flight Recorder of an incident: which dumps, how many have answered, and what they say so far. */

import type { DumpsRow } from "../live/rows";
import { Empty, Loading } from "../parts/bits";
import { Failure } from "../parts/Failure";
import { useAnswer } from "../parts/useAnswer";
import { beatOf, DumpsBar, SilentRanks, shownRequest, useDumps } from "./DumpsBar";
import { RecorderView } from "./RecorderView";
import { StacksView } from "./StacksView";
import type { DumpRequest } from "./shapes";
import { readRecorder, readStacks, type Source } from "./source";

interface DumpTabProps {
  kind: "stacks" | "recorder";
  source: Source;
  row: DumpsRow | null;
  selected: number | null;
  onSelect: (rank: number | null) => void;
}

export function DumpTab({ kind, source, row, selected, onSelect }: DumpTabProps) {
  const dumps = useDumps(source, row);
  if (dumps.failure && !dumps.value) return <Failure error={dumps.failure} again={dumps.again} />;
  if (!dumps.value) return <Loading what="dumps" />;
  const request = shownRequest(dumps.value.requests, kind);
  const Read = kind === "stacks" ? ReadStacks : ReadRecorder;
  const beat = request ? `${beatOf(row)} ${request.ranks_answered} ${request.state}` : "";
  return (
    <div class="dumps">
      <DumpsBar source={source} dumps={dumps} row={row} kind={kind} />
      {request && request.ranks_answered > 0 && (
        <Read source={source} request={request} beat={beat} selected={selected} onSelect={onSelect} />
      )}
      {request && request.ranks_answered === 0 && <NobodyYet request={request} />}
    </div>
  );
}

/** No rank has answered: those that said why are told with the reason, the others are waited for or given up. */
function NobodyYet({ request }: { request: DumpRequest }) {
  const title = request.state === "open" ? "No rank has answered yet." : "No rank answered.";
  return (
    <>
      <Empty title={title}>
        <p>
          {request.state === "open"
            ? "Agents hear of it in the answer to their next batch, within a second or two."
            : "The agents may be away, or too old to take dumps."}
        </p>
      </Empty>
      <SilentRanks silent={request.silent} total={request.silent_count} what="dumps" />
    </>
  );
}

interface ReadProps {
  source: Source;
  request: DumpRequest;
  beat: string;
  selected: number | null;
  onSelect: (rank: number | null) => void;
}

function ReadStacks({ source, request, beat, selected, onSelect }: ReadProps) {
  const stacks = useAnswer(`${source} ${request.id}`, () => readStacks(source, request.id), beat);
  if (stacks.value) return <StacksView stacks={stacks.value} source={source} selected={selected} onSelect={onSelect} />;
  return stacks.failure ? <Failure error={stacks.failure} again={stacks.again} /> : <Loading what="stacks" />;
}

function ReadRecorder({ source, request, beat, selected, onSelect }: ReadProps) {
  const recorder = useAnswer(`${source} ${request.id}`, () => readRecorder(source, request.id), beat);
  if (recorder.value) return <RecorderView recorder={recorder.value} selected={selected} onSelect={onSelect} />;
  return recorder.failure ? <Failure error={recorder.failure} again={recorder.again} /> : <Loading what="recordings" />;
}
