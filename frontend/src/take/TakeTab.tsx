/*
 * What one takes away from an incident: everything known of it as one zip, built by a worker while the page shows how far it
 * is, and the draft of a post-mortem, to be copied or downloaded.
 */

import { useEffect, useState } from "preact/hooks";
import { Ago, Loading, putOnClipboard } from "../parts/bits";
import { Failure } from "../parts/Failure";
import { useAnswer } from "../parts/useAnswer";
import { notify } from "../state/notices";
import { count } from "../state/words";
import { buildEvidence, type EvidenceRow, readEvidence, readPostMortem, sizeWords, takeEvidence } from "./calls";
import "./take.css";

const LOOK_MS = 1000;

export function TakeTab({ number, beat }: { number: number; beat: string | number }) {
  return (
    <div class="take">
      <Evidence number={number} />
      <PostMortem number={number} beat={beat} />
    </div>
  );
}

const isUnderWay = (row: EvidenceRow) => row.state === "waiting" || row.state === "building";

function Evidence({ number }: { number: number }) {
  const [tick, setTick] = useState(0);
  const [busy, setBusy] = useState(false);
  const { value, failure, again } = useAnswer(`evidence ${number}`, () => readEvidence(number), tick);
  const underWay = value?.bundles.find(isUnderWay);
  useEffect(() => {
    if (!underWay) return;
    const timer = setInterval(() => setTick((n) => n + 1), LOOK_MS);
    return () => clearInterval(timer);
  }, [underWay === undefined]);
  const build = async () => {
    setBusy(true);
    await buildEvidence(number).catch((error: Error) => notify(error.message, "bad"));
    setBusy(false);
    again();
  };
  return (
    <section aria-labelledby="evidence-bundle">
      <h3 id="evidence-bundle">Evidence bundle</h3>
      <p class="faint">
        One zip with every revision of the diagnosis, the traces (for <code>python -m rca</code> and for Perfetto),
        stacks, dumps, pictures, timeline and the draft below. It is kept for seven days.
      </p>
      {failure && !value && <Failure error={failure} again={again} />}
      {!value && !failure && <Loading what="bundles" />}
      {value?.may && (
        <button type="button" disabled={busy || underWay !== undefined} onClick={() => void build()}>
          {underWay ? "Building …" : "Build a bundle"}
        </button>
      )}
      {value && !value.may && <p class="faint">Responders build and download bundles.</p>}
      {value && value.bundles.length > 0 && (
        <ul class="bundles">
          {value.bundles.map((row) => (
            <Bundle key={row.id} row={row} number={number} may={value.may} />
          ))}
        </ul>
      )}
    </section>
  );
}

function Bundle({ row, number, may }: { row: EvidenceRow; number: number; may: boolean }) {
  const [busy, setBusy] = useState(false);
  const take = async () => {
    setBusy(true);
    await takeEvidence(number, row.id).catch((error: Error) => notify(error.message, "bad"));
    setBusy(false);
  };
  return (
    <li>
      {isUnderWay(row) && <Progress row={row} />}
      {row.state === "failed" && <p class="warning">{row.failed}</p>}
      {row.state === "done" && (
        <>
          {may && (
            <button type="button" disabled={busy} onClick={() => void take()}>
              {busy ? "Downloading …" : `Download (${sizeWords(row.size_bytes)})`}
            </button>
          )}
          <span>
            {count(row.n_files, "file")}, diagnosis {row.revision || "not yet made"}
            {!row.is_newest && <b class="old"> – a newer diagnosis is not in it</b>}
          </span>
        </>
      )}
      <span class="faint">
        asked for by {row.wanted_by} <Ago at={row.wanted_at} />
      </span>
      {row.left_out.length > 0 && (
        <details>
          <summary>{count(row.left_out.length, "thing")} left out</summary>
          <ul>
            {row.left_out.map((what) => (
              <li key={what}>{what}</li>
            ))}
          </ul>
        </details>
      )}
    </li>
  );
}

function Progress({ row }: { row: EvidenceRow }) {
  const word = row.state === "waiting" ? "waits for a worker" : row.step;
  return (
    <span class="progress" role="status">
      <progress max={1} value={row.progress} aria-label="How far the bundle is" />
      {word}
    </span>
  );
}

function PostMortem({ number, beat }: { number: number; beat: string | number }) {
  const { value, failure, again } = useAnswer(`post-mortem ${number}`, () => readPostMortem(number), beat);
  const copy = () => value && putOnClipboard(value).then(() => notify("Draft copied"));
  const save = () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([value ?? ""], { type: "text/markdown" }));
    link.download = `incident-${number}-post-mortem.md`;
    link.click();
    URL.revokeObjectURL(link.href);
  };
  return (
    <section aria-labelledby="post-mortem">
      <h3 id="post-mortem">Post-mortem, a draft</h3>
      <p class="faint">
        Facts in Markdown: impact in rank-hours, culprit and evidence, what was ruled out, who did what. What only
        people know is marked TODO.
      </p>
      {failure && value === null && <Failure error={failure} again={again} />}
      {value === null && !failure && <Loading what="the draft" />}
      {value !== null && (
        <>
          <div class="head-acts">
            <button type="button" onClick={() => void copy()}>
              Copy Markdown
            </button>
            <button type="button" onClick={save}>
              Download .md
            </button>
            <button type="button" class="quiet" onClick={again}>
              Write it anew
            </button>
          </div>
          {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a scrolling box must be reachable by keyboard */}
          <pre class="draft" tabIndex={0}>
            {value}
          </pre>
        </>
      )}
    </section>
  );
}
