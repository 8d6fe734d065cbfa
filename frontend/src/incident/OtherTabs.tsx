/* The two plain tabs: what the trigger saw lately in this job, and the diagnosis as JSON. */

import { useEffect, useState } from "preact/hooks";
import { type IncidentAnswer, readDiagnosisText, readJob, takeAway } from "../api";
import { Loading } from "../parts/bits";
import { Failure } from "../parts/Failure";
import { LooksTable } from "../parts/LooksTable";
import { useAnswer } from "../parts/useAnswer";
import { notify } from "../state/notices";
import type { Look } from "../types";
import { indented } from "./raw";

export function LooksOfJob({ id }: { id: number }) {
  const [looks, setLooks] = useState<Look[] | null>(null);
  const [failure, setFailure] = useState<Error | null>(null);
  const load = () => void readJob(id).then((answer) => setLooks(answer.looks), setFailure);
  useEffect(load, [id]);
  if (failure && !looks) return <Failure error={failure} again={load} />;
  return looks ? <LooksTable looks={looks} /> : <Loading what="looks" />;
}

/** As the server wrote it: read and written again, nanoseconds since 1970 would be rounded to 256 of them. */
export function RawTab({ answer }: { answer: IncidentAnswer }) {
  const { number } = answer.incident;
  const revision = answer.diagnosis_id;
  const { value, failure, again } = useAnswer(`${number} ${revision}`, async () =>
    revision === null ? "" : indented(await readDiagnosisText(number, revision)),
  );
  if (failure && value === null) return <Failure error={failure} again={again} />;
  if (value === null) return <Loading what="the diagnosis" />;
  const text = value || JSON.stringify({ incident: answer.incident }, null, 2);
  const copy = () => navigator.clipboard?.writeText(text).then(() => notify("JSON copied"));
  return (
    <div class="raw">
      <div class="raw-tools">
        <button type="button" onClick={copy}>
          Copy JSON
        </button>
        {answer.may.includes("diagnose") && <TakeWindow number={number} />}
      </div>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a scrolling box must be reachable by keyboard */}
      <pre tabIndex={0}>{text}</pre>
    </div>
  );
}

/** The traces around the incident, for `python -m rca` on any machine. */
function TakeWindow({ number }: { number: number }) {
  const [busy, setBusy] = useState(false);
  const take = async () => {
    setBusy(true);
    await takeAway(`incidents/${number}/window`, `incident-${number}.npz`).catch((error: Error) =>
      notify(error.message, "bad"),
    );
    setBusy(false);
  };
  return (
    <>
      <button type="button" disabled={busy} onClick={() => void take()}>
        {busy ? "Cutting the window …" : "Download the traces (.npz)"}
      </button>
      <span class="faint">
        diagnosed anywhere by <code>python -m rca incident-{number}.npz</code>
      </span>
    </>
  );
}
