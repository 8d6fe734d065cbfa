/*
 * Where the time of a step goes: the frontier's shares over time, and one window in full, which a click on its row
 * shows. Which window and which group of ranks are in the address.
 */

import { ask } from "../api";
import { Ago, Empty, Loading } from "../parts/bits";
import { Failure } from "../parts/Failure";
import { Figure } from "../parts/Figure";
import { type Column, Table } from "../parts/Table";
import { useAnswer } from "../parts/useAnswer";
import { query, selectRank, setQuery } from "../state/address";
import { count } from "../state/words";
import { OneWindow } from "./OneWindow";
import {
  beforeWords,
  type Led,
  ms,
  percent,
  type StageWindowRow,
  type StageWindows,
  short,
  standingWords,
  VERDICT,
} from "./shapes";
import "./stages.css";

interface StagesPanelProps {
  /** `jobs/7` or `incidents/12`: whose windows. */
  source: string;
  jobId: number;
  /** Changes when it should be asked anew. */
  beat?: string | number;
}

export function StagesPanel({ source, jobId, beat = "" }: StagesPanelProps) {
  const role = query.value.get("group");
  const asked = role === null ? `${source}/stages` : `${source}/stages?role=${encodeURIComponent(role)}`;
  const { value, failure, again } = useAnswer(asked, () => ask<StageWindows>(asked), beat);
  if (failure && !value) return <Failure error={failure} again={again} />;
  if (!value) return <Loading what="stages" />;
  if (value.windows.length === 0) {
    return (
      <div class="stages">
        <Trouble of={value.recording} />
        <NoWindows answer={value} />
      </div>
    );
  }
  const wanted = Number(query.value.get("window"));
  const shown = value.windows.find((one) => one.id === wanted)?.id ?? value.newest_moved ?? value.windows.at(-1)?.id;
  return (
    <div class="stages">
      <Trouble of={value.recording} />
      {standingWords(value) && <p class="stage-standing">{standingWords(value)}</p>}
      {value.roles.length > 1 && <Roles answer={value} />}
      <Figure figure={value.shares} label="Exposed time of a step by stage, over time" />
      <LedBy led={value.led} />
      <details class="stage-windows">
        <summary>{count(value.windows.length, "window")}, newest first</summary>
        <Windows rows={value.windows} shown={shown} />
      </details>
      {shown !== undefined && <OneWindow jobId={jobId} id={shown} before={(row) => beforeWords(row, value)} />}
    </div>
  );
}

/** Why windows are missing, as far as the server could not make them. */
function Trouble({ of }: { of: StageWindows["recording"] }) {
  const missing =
    of.gaps === 1
      ? "1 stretch could not be cut: its windows are"
      : `${of.gaps} stretches could not be cut: their windows are`;
  return (
    <>
      {of.failed && <p class="warning">The newest stretch cannot be cut into windows: {of.failed}</p>}
      {of.gaps > 0 && <p class="warning">{missing} missing.</p>}
      {(of.missed ?? 0) > 0 && (
        <p class="warning">
          {count(of.missed ?? 0, "step")} came too late for {of.missed === 1 ? "its window" : "their windows"}, or
          never.
        </p>
      )}
    </>
  );
}

function NoWindows({ answer }: { answer: StageWindows }) {
  if (!answer.recording.is_recorded) {
    return (
      <Empty title="No recorder of stages reports from this job.">
        Add the recorder to the training loop to see in which stage, and on which rank, a step's time goes.
      </Empty>
    );
  }
  return (
    <Empty title="No window of stages in this time.">
      A window is closed after 120 steps or a minute, the first ones of a job left out.
    </Empty>
  );
}

function Roles({ answer }: { answer: StageWindows }) {
  return (
    <label class="stage-roles">
      Ranks of one role are compared:{" "}
      <select value={answer.role} onChange={(change) => setQuery({ group: change.currentTarget.value, window: null })}>
        {answer.roles.map((role) => (
          <option key={role} value={role}>
            {role || "all ranks"}
          </option>
        ))}
      </select>
    </label>
  );
}

/** A rank is not a node: before a node is drained, one wants to know whether its other ranks are late, too. */
function LedBy({ led }: { led: Led[] }) {
  if (led.length === 0) return null;
  return (
    <p class="stage-led">
      {led.slice(0, 3).map((one) => (
        <span key={one.rank}>
          <button type="button" class="link" onClick={() => selectRank(one.rank)}>
            rank {one.rank}
          </button>{" "}
          was last in {one.windows} of {one.of} {one.of === 1 ? "window" : "windows"} that moved
          {one.node && (
            <>
              ; it is on <b>{one.node}</b>,{" "}
              {one.mates === 0 ? "whose other ranks never were" : `of which ${one.mates} more were`}
            </>
          )}
          .{" "}
        </span>
      ))}
    </p>
  );
}

const COLUMNS: Column<StageWindowRow>[] = [
  { word: "Steps", cell: (row) => `${row.first_step.toLocaleString("en")}–${row.last_step.toLocaleString("en")}` },
  { word: "Ended", cell: (row) => <Ago at={row.ended_at} /> },
  {
    word: "Verdict",
    cell: (row) => (
      <span class={`stage-verdict ${row.verdict}`} title={VERDICT[row.verdict].about}>
        {VERDICT[row.verdict].word}
      </span>
    ),
  },
  { word: "Step", isNumber: true, cell: (row) => ms(row.step_s) },
  { word: "Usual", isNumber: true, class: () => "faint", cell: (row) => (row.usual_s ? ms(row.usual_s) : "unknown") },
  {
    word: "Leading stage",
    cell: (row) => `${short(row.stage) || "none"}${row.shares[row.stage] ? `, ${percent(row.shares[row.stage])}` : ""}`,
  },
  { word: "Rank", isNumber: true, cell: (row) => (row.leader === null ? "nobody" : row.leader) },
];

function Windows({ rows, shown }: { rows: StageWindowRow[]; shown: number | undefined }) {
  return (
    <Table
      label="Windows of stages"
      isCards
      columns={[
        ...COLUMNS,
        {
          word: "",
          cell: (row) =>
            row.id === shown ? (
              <b>shown</b>
            ) : (
              <button type="button" onClick={() => setQuery({ window: String(row.id) })}>
                Show
              </button>
            ),
        },
      ]}
      rows={[...rows].reverse()}
      rowKey={(row) => row.id}
      line={(row) => ({ class: row.id === shown ? "selected" : "" })}
    />
  );
}
