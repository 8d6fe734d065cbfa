/*
 * What people tell the console about a job: that something is wrong which no trigger saw, that for a while nothing is
 * expected of it, and that its pace was changed on purpose.
 */

import { useState } from "preact/hooks";
import { declarePause, declareWantedPace, endPause, type Pause, reportProblem, type WantedPace } from "../api";
import type { JobRow } from "../live/rows";
import { Ago } from "../parts/bits";
import { Dialog } from "../parts/Dialog";
import { Refused, type Saying, useSaying } from "../parts/useSaying";
import { go } from "../state/address";
import { absolute, serverNow, spanWords } from "../state/clock";
import { notify, settle } from "../state/notices";

interface JobActsProps {
  job: JobRow;
  may: readonly string[];
  pause: Pause | null;
  wanted: WantedPace | null;
  onActed: () => void;
}

type Asking = "report" | "pause" | "pace" | null;

export function JobActs({ job, may, pause, wanted, onActed }: JobActsProps) {
  const [asking, setAsking] = useState<Asking>(null);
  const [busy, setBusy] = useState(false);
  const close = () => setAsking(null);
  const end = async () => {
    setBusy(true);
    await endPause(job.id).then(
      () => settle("job act"),
      (error: Error) => notify(error.message, "bad", "job act"),
    );
    setBusy(false);
    onActed();
  };
  const report = async (note: string, since: string) => {
    const { incident, opened } = await reportProblem(job.id, note, since);
    notify(
      opened ? `Incident ${incident.number} is open; it is being diagnosed.` : `Added to incident ${incident.number}.`,
    );
    go(`/incidents/${incident.number}`);
  };
  const dialog = { job, onClose: close, onActed };
  return (
    <>
      <div class="job-acts">
        {may.includes("trigger") && (
          <button type="button" onClick={() => setAsking("report")}>
            Report a problem …
          </button>
        )}
        {may.includes("pause") && (
          <button type="button" onClick={() => setAsking("pause")}>
            {pause ? "Change the pause …" : "Declare a pause …"}
          </button>
        )}
        {may.includes("pause") && (
          <button type="button" onClick={() => setAsking("pace")}>
            Take this pace as normal …
          </button>
        )}
        <a href={`/jobs/${job.id}/settings`}>Settings of this job</a>
      </div>
      {pause && <PauseNote pause={pause} onEnd={may.includes("pause") && !busy ? () => void end() : null} />}
      {wanted && (
        <p class="faint">
          The pace since {absolute(wanted.since, false)} is taken as normal, said {wanted.declared_by}{" "}
          <Ago at={wanted.declared_at} />: {wanted.reason}
        </p>
      )}
      {asking === "pace" && <WantedPaceDialog {...dialog} onSay={(why) => declareWantedPace(job.id, why)} />}
      {asking === "report" && <ReportDialog {...dialog} onSay={report} />}
      {asking === "pause" && <PauseDialog {...dialog} onSay={(why, minutes) => declarePause(job.id, why, minutes)} />}
    </>
  );
}

function PauseNote({ pause, onEnd }: { pause: Pause; onEnd: (() => void) | null }) {
  const left = Date.parse(pause.until) - serverNow();
  return (
    <div class="pause-note">
      <div>
        <p>
          <b>Nothing is expected of this job until {absolute(pause.until, false)}</b>
          {left > 0 && <span class="faint"> ({spanWords(left)} left)</span>}: {pause.reason}
        </p>
        <p class="faint">
          Declared by {pause.declared_by} <Ago at={pause.declared_at} />. Hangs and silence are still told.
        </p>
      </div>
      {onEnd && (
        <button type="button" class="small" onClick={onEnd}>
          End the pause
        </button>
      )}
    </div>
  );
}

interface AskProps<Say> {
  job: JobRow;
  onClose: () => void;
  /** After every try: what stands on the page may have changed. */
  onActed: () => void;
  /** Rejects with why it was refused. */
  onSay: Say;
}

const MINUTE_MS = 60_000;
const BEGAN: [minutes: number, word: string][] = [
  [0, "just now"],
  [5, "5 minutes ago"],
  [15, "15 minutes ago"],
  [60, "an hour ago"],
  [360, "6 hours ago"],
  [1430, "a day ago"],
];

function ReportDialog({ job, onClose, onActed, onSay }: AskProps<(note: string, since: string) => Promise<unknown>>) {
  const saying = useSaying(onClose);
  const [note, setNote] = useState("");
  const [ago, setAgo] = useState(0);
  const since = () => (ago === 0 ? "" : new Date(serverNow() - ago * MINUTE_MS).toISOString());
  return (
    <Dialog title={`Something is wrong with ${job.name}`} onClose={onClose}>
      <form
        onSubmit={(submit) => {
          submit.preventDefault();
          if (note.trim()) void saying.say(() => onSay(note.trim(), since()).finally(onActed));
        }}
      >
        <p>It is diagnosed at once: in an incident of its own, or in the one that is open for this attempt.</p>
        <label for="report-note">What did you see?</label>
        <textarea
          id="report-note"
          rows={4}
          required
          maxLength={2000}
          value={note}
          onInput={(input) => setNote(input.currentTarget.value)}
        />
        <Choice id="report-since" word="Since when?" options={BEGAN} value={ago} onChoose={setAgo} />
        <Buttons word="Report" saying={saying} onClose={onClose} />
      </form>
    </Dialog>
  );
}

const LONG: [minutes: number, word: string][] = [
  [30, "30 minutes"],
  [60, "an hour"],
  [240, "4 hours"],
  [720, "12 hours"],
  [1440, "a day"],
  [10_080, "a week"],
];

function PauseDialog({ job, onClose, onActed, onSay }: AskProps<(why: string, minutes: number) => Promise<unknown>>) {
  const saying = useSaying(onClose);
  const [why, setWhy] = useState("");
  const [minutes, setMinutes] = useState(60);
  return (
    <Dialog title={`Nothing is expected of ${job.name}`} onClose={onClose}>
      <form
        onSubmit={(submit) => {
          submit.preventDefault();
          if (why.trim()) void saying.say(() => onSay(why.trim(), minutes).finally(onActed));
        }}
      >
        <p>Until the pause is over an idle job opens no incident. Hangs and silent nodes still do.</p>
        <label for="pause-why">Why?</label>
        <textarea
          id="pause-why"
          rows={3}
          required
          maxLength={2000}
          value={why}
          onInput={(input) => setWhy(input.currentTarget.value)}
        />
        <Choice id="pause-long" word="For how long?" options={LONG} value={minutes} onChoose={setMinutes} />
        <Buttons word="Declare the pause" saying={saying} onClose={onClose} />
      </form>
    </Dialog>
  );
}

function WantedPaceDialog({ job, onClose, onActed, onSay }: AskProps<(why: string) => Promise<unknown>>) {
  const saying = useSaying(onClose);
  const [why, setWhy] = useState("");
  return (
    <Dialog title={`${job.name} was changed on purpose`} onClose={onClose}>
      <form
        onSubmit={(submit) => {
          submit.preventDefault();
          if (why.trim()) void saying.say(() => onSay(why.trim()).finally(onActed));
        }}
      >
        <p>
          Its pace since the open slowdown began, else of the last minute, becomes the normal one. The slowdown becomes
          clear; what is slower than that is told again.
        </p>
        <label for="pace-why">What was changed?</label>
        <textarea
          id="pace-why"
          rows={3}
          required
          maxLength={2000}
          value={why}
          onInput={(input) => setWhy(input.currentTarget.value)}
        />
        <Buttons word="Take it as normal" saying={saying} onClose={onClose} />
      </form>
    </Dialog>
  );
}

interface ChoiceProps {
  id: string;
  word: string;
  options: [number, string][];
  value: number;
  onChoose: (value: number) => void;
}

function Choice({ id, word, options, value, onChoose }: ChoiceProps) {
  return (
    <>
      <label for={id}>{word}</label>
      <select id={id} value={value} onChange={(change) => onChoose(Number(change.currentTarget.value))}>
        {options.map(([minutes, name]) => (
          <option key={minutes} value={minutes} selected={minutes === value}>
            {name}
          </option>
        ))}
      </select>
    </>
  );
}

function Buttons({ word, saying, onClose }: { word: string; saying: Saying; onClose: () => void }) {
  return (
    <>
      <Refused words={saying.refused} />
      <div class="dialog-actions">
        <button type="button" onClick={onClose}>
          Cancel
        </button>
        <button type="submit" class="primary" disabled={saying.busy}>
          {word}
        </button>
      </div>
    </>
  );
}
