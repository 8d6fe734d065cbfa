/*
 * Dumps of a job that was never traced here: drop a zip, and read the same verdict, stacks and recorder as of an incident.
 * The address of the answer holds for a day, so that it can be sent to somebody.
 */

import { useEffect, useRef, useState } from "preact/hooks";
import { verdictRowOf } from "../dumps/bundle";
import { RecorderView } from "../dumps/RecorderView";
import { StacksView } from "../dumps/StacksView";
import type { BundleAnswer } from "../dumps/shapes";
import { readBundle } from "../dumps/source";
import { refusalOf, sendBundle, sizeWords, type Upload } from "../dumps/upload";
import { EvidenceTab } from "../incident/EvidenceTab";
import { NotSeen } from "../incident/NotSeen";
import { Verdict } from "../incident/Verdict";
import { WaitPath } from "../incident/WaitPath";
import { Copy, Empty, Loading } from "../parts/bits";
import { Failure } from "../parts/Failure";
import { type Tab, Tabs } from "../parts/Tabs";
import { useAnswer } from "../parts/useAnswer";
import { go, selectedRank, selectRank } from "../state/address";
import { pageTitle } from "../state/badge";
import { session } from "../state/team";

const READ_AGAIN_MS = 1000;

export function BundlePage({ id }: { id: string }) {
  useEffect(() => {
    pageTitle.value = "Bundle";
  }, [id]);
  return <div class="page bundle">{id ? <Bundle key={id} id={id} /> : <DropPlace />}</div>;
}

function DropPlace() {
  const [file, setFile] = useState<File | null>(null);
  const [share, setShare] = useState(0);
  const [refusal, setRefusal] = useState("");
  const teams = Object.entries(session.value?.roles ?? {}).flatMap(([name, role]) => (role === "viewer" ? [] : [name]));
  const [team, setTeam] = useState(teams[0]);
  const upload = useRef<Upload | null>(null);
  useEffect(() => () => upload.current?.stop(), []);
  const send = async (chosen: File | undefined) => {
    if (!chosen) return;
    const why = refusalOf(chosen);
    setRefusal(why);
    if (why) return;
    setFile(chosen);
    setShare(0);
    try {
      upload.current = sendBundle(chosen, teams.length > 1 ? team : undefined, setShare);
      go(`/bundle/${await upload.current.done}`);
    } catch (error) {
      setRefusal((error as Error).message);
      setFile(null);
    }
  };
  return (
    <>
      <h1>Read dumps of any job</h1>
      <p class="bundle-lead">
        A zip of py-spy stacks, Flight Recorder dumps, NCCL RAS or Inspector output, of a job that need not have been
        watched by this console. Who started it is told as for an incident.
      </p>
      {teams.length > 1 && <TeamChoice teams={teams} chosen={team} onChoose={setTeam} />}
      {teams.length === 0 ? (
        <Empty title="Bringing a bundle needs the responder role." />
      ) : file ? (
        <Sending file={file} share={share} onStop={() => upload.current?.stop()} />
      ) : (
        <DropZone onFile={(chosen) => void send(chosen)} />
      )}
      {refusal && (
        <p class="warning" role="alert">
          {refusal}
        </p>
      )}
      <WhatIsRead />
    </>
  );
}

interface TeamChoiceProps {
  teams: readonly string[];
  chosen: string;
  onChoose: (team: string) => void;
}

function TeamChoice({ teams, chosen, onChoose }: TeamChoiceProps) {
  return (
    <label class="dumps-choice">
      <span>For team</span>
      <select value={chosen} onChange={(change) => onChoose((change.target as HTMLSelectElement).value)}>
        {teams.map((team) => (
          <option key={team}>{team}</option>
        ))}
      </select>
    </label>
  );
}

function DropZone({ onFile }: { onFile: (file: File | undefined) => void }) {
  const [isOver, setOver] = useState(false);
  const drop = (dropped: DragEvent) => {
    dropped.preventDefault();
    setOver(false);
    onFile(dropped.dataTransfer?.files[0]);
  };
  return (
    <label
      class={`drop-zone ${isOver ? "over" : ""}`}
      onDragOver={(drag) => {
        drag.preventDefault();
        setOver(true);
      }}
      onDragLeave={() => setOver(false)}
      onDrop={drop}
    >
      <svg viewBox="0 0 24 24" aria-hidden="true">
        <path d="M12 15V3M7.500 7.500L12 3l4.500 4.500M3 14v6h18v-6" />
      </svg>
      <b>Drop a zip here, or choose one</b>
      <span class="faint">at most 512 MB; kept for a day, seen by your team only</span>
      <input
        type="file"
        accept=".zip,application/zip"
        onChange={(change) => onFile((change.target as HTMLInputElement).files?.[0])}
      />
    </label>
  );
}

function Sending({ file, share, onStop }: { file: File; share: number; onStop: () => void }) {
  return (
    <div class="panel sending">
      <p>
        Sending <b>{file.name}</b>, {sizeWords(file.size)}
      </p>
      <progress max={1} value={share} aria-label="Sent" />
      <p class="faint">{Math.round(100 * share)} %</p>
      <button type="button" class="small" onClick={onStop}>
        Stop
      </button>
    </div>
  );
}

function WhatIsRead() {
  return (
    <section class="panel what-is-read" aria-labelledby="what-is-read">
      <h2 id="what-is-read">What can be in it</h2>
      <dl>
        <div>
          <dt>Stacks</dt>
          <dd>
            <code>py-spy dump --json</code> or its text, one file per process; the rank in the file’s or folder’s name
          </dd>
        </div>
        <div>
          <dt>Flight Recorder</dt>
          <dd>what PyTorch 2.4 or newer writes on a timeout, pickles or JSON, any prefix</dd>
        </div>
        <div>
          <dt>NCCL</dt>
          <dd>RAS as text or JSON, Inspector JSON lines</dd>
        </div>
      </dl>
      <p class="faint">
        Ranks may be missing: the answer says what they hide. Nothing in the zip is run. Offline:{" "}
        <code>python -m rca bundle FOLDER_OR_ZIP</code>
      </p>
    </section>
  );
}

function Bundle({ id }: { id: string }) {
  const { value, failure, again } = useAnswer(id, () => readBundle(id));
  const isWaiting = value?.state === "waiting" || value?.state === "reading";
  useEffect(() => {
    if (!isWaiting) return;
    const timer = setInterval(again, READ_AGAIN_MS);
    return () => clearInterval(timer);
  }, [isWaiting]);
  if (failure && !value) return <Failure error={failure} again={again} />;
  if (!value) return <Loading what="the bundle" />;
  return (
    <>
      <div class="incident-head">
        <span>
          Bundle <b>{value.name}</b>
        </span>
        <Copy text={location.origin + location.pathname} label="link" />
        <span class="faint">holds for a day</span>
        <a class="another" href="/bundle">
          Read another
        </a>
      </div>
      {isWaiting && <Reading bundle={value} />}
      {value.state === "refused" && (
        <Empty title="This bundle was refused.">
          <p>{value.refused || "No reason was given."}</p>
        </Empty>
      )}
      {value.state === "done" && <Answer bundle={value} />}
    </>
  );
}

function Reading({ bundle }: { bundle: BundleAnswer }) {
  return (
    <div class="panel sending">
      <p role="status">{bundle.state === "waiting" ? "Waiting to be read …" : "Reading …"}</p>
      <progress max={1} value={bundle.progress} aria-label="Read" />
      <p class="faint">{Math.round(100 * bundle.progress)} %</p>
      {bundle.waits_for && <p class="warning">{bundle.waits_for}</p>}
    </div>
  );
}

const nobody = () => "";

function Answer({ bundle }: { bundle: BundleAnswer }) {
  const { diagnosis } = bundle;
  const rank = selectedRank();
  if (!diagnosis) return <Empty title="Nothing in it could be read." />;
  const said = { ...diagnosis, agreement: bundle.agreement, layer: bundle.layer };
  const row = verdictRowOf(said);
  const tabs: Tab[] = [
    {
      id: "stacks",
      word: "Stacks",
      content: () =>
        bundle.stacks ? (
          <StacksView stacks={bundle.stacks} source={`bundles/${bundle.id}`} selected={rank} onSelect={selectRank} />
        ) : (
          <Empty title="There are no stacks in this bundle." />
        ),
    },
    {
      id: "recorder",
      word: "Flight Recorder",
      content: () =>
        bundle.recorder ? (
          <RecorderView recorder={bundle.recorder} selected={rank} onSelect={selectRank} />
        ) : (
          <Empty title="There is no Flight Recorder dump in this bundle." />
        ),
    },
    { id: "evidence", word: "Evidence", content: () => <EvidenceTab diagnosis={said} revisions={[]} /> },
  ];
  // What there is of comes first.
  if (!bundle.stacks && bundle.recorder) tabs.unshift(...tabs.splice(1, 1));
  return (
    <>
      <Verdict row={row} diagnosis={said} grid={null} seenBefore={[]} onSelect={selectRank} />
      <NotSeen title="What was not seen" missing={said.missing} downgraded={said.downgraded} />
      {said.path.length > 0 && (
        <div class="pictures">
          <WaitPath diagnosis={said} culprits={row.culprits} nodeOf={nobody} />
        </div>
      )}
      <Tabs tabs={tabs} label="What was in it" />
    </>
  );
}
