/* The two plain tabs: what the trigger saw lately in this job, and the diagnosis as JSON. */

import { useEffect, useState } from "preact/hooks";
import { type IncidentAnswer, readJob } from "../api";
import { Loading } from "../parts/bits";
import { Failure } from "../parts/Failure";
import { LooksTable } from "../parts/LooksTable";
import { notify } from "../state/notices";
import type { Look } from "../types";

export function LooksOfJob({ id }: { id: number }) {
  const [looks, setLooks] = useState<Look[] | null>(null);
  const [failure, setFailure] = useState<Error | null>(null);
  const load = () => void readJob(id).then((answer) => setLooks(answer.looks), setFailure);
  useEffect(load, [id]);
  if (failure && !looks) return <Failure error={failure} again={load} />;
  return looks ? <LooksTable looks={looks} /> : <Loading what="looks" />;
}

export function RawTab({ answer }: { answer: IncidentAnswer }) {
  const text = JSON.stringify({ incident: answer.incident, diagnosis: answer.diagnosis }, null, 2);
  const copy = () => navigator.clipboard?.writeText(text).then(() => notify("JSON copied"));
  return (
    <div class="raw">
      <button type="button" onClick={copy}>
        Copy JSON
      </button>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a scrolling box must be reachable by keyboard */}
      <pre tabIndex={0}>{text}</pre>
    </div>
  );
}
