/* The tabs Stacks and Flight Recorder of an incident: which dumps, how many have answered, and what they say so far. */

import type { DumpsRow } from "../live/rows";
import { Empty, Loading } from "../parts/bits";
import { Failure } from "../parts/Failure";
import { useAnswer } from "../parts/useAnswer";
import { AwaitedNodes, awaitedNodes, beatOf, DumpsBar, SilentRanks, shownRequest, useDumps } from "./DumpsBar";
import { RecorderView } from "./RecorderView";
import { StacksView } from "./StacksView";
import type { DumpRequest } from "./shapes";
import { readRecorder, readStacks, type Source } from "./source";
import { isWithoutPython, silentOfKind } from "./unheard";

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
        <>
          <AwaitedNodes request={request} row={row} />
          <Read
            source={source}
            request={request}
            awaited={awaitedNodes(request, row)}
            beat={beat}
            selected={selected}
            onSelect={onSelect}
          />
        </>
      )}
      {request && request.ranks_answered === 0 && <NobodyYet request={request} kind={kind} />}
    </div>
  );
}

/** Nothing was taken: of whom the reason is known it is told, the others are waited for or given up. */
export function NobodyYet({ request, kind }: { request: DumpRequest; kind: DumpTabProps["kind"] }) {
  const { silent, total } = silentOfKind(request, kind);
  if (isWithoutPython(request)) {
    return (
      <p class="faint">
        There is nothing to take: the ranks of this job run no Python, so they have neither Python stacks nor a Flight
        Recorder. The demo’s are C programs.
      </p>
    );
  }
  return (
    <>
      <Empty title={request.state === "open" ? "Nothing was taken yet." : "Nothing could be taken."}>
        <p>{nothingWords(request)}</p>
      </Empty>
      <SilentRanks silent={silent} total={total} what={kind === "stacks" ? "stacks" : "Flight Recorder"} />
    </>
  );
}

function nothingWords({ state, nodes_answered }: DumpRequest): string {
  if (state === "open") return "Agents hear of it in the answer to their next batch, within a second or two.";
  if (nodes_answered > 0) return "The agents have tried; why nothing came of it stands below.";
  return "No agent answered: they may be away, or older than this.";
}

interface ReadProps {
  source: Source;
  request: DumpRequest;
  awaited: number;
  beat: string;
  selected: number | null;
  onSelect: (rank: number | null) => void;
}

function ReadStacks({ source, request, beat, selected, onSelect }: ReadProps) {
  const stacks = useAnswer(`${source} ${request.id}`, () => readStacks(source, request.id), beat);
  if (stacks.value) return <StacksView stacks={stacks.value} source={source} selected={selected} onSelect={onSelect} />;
  return stacks.failure ? <Failure error={stacks.failure} again={stacks.again} /> : <Loading what="stacks" />;
}

function ReadRecorder({ source, request, awaited, beat, selected, onSelect }: ReadProps) {
  const recorder = useAnswer(`${source} ${request.id}`, () => readRecorder(source, request.id), beat);
  if (recorder.value)
    return <RecorderView recorder={recorder.value} awaited={awaited} selected={selected} onSelect={onSelect} />;
  return recorder.failure ? <Failure error={recorder.failure} again={recorder.again} /> : <Loading what="recordings" />;
}
