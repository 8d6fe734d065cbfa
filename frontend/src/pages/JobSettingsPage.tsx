/*
 * What the triggers and rules go by in one job: every value with its default, range and unit; changes need a reason,
 * are made together, and are kept.
 */

import { useEffect, useState } from "preact/hooks";
import { ApiError, changeJobSettings, readJobSettings } from "../api";
import { Ago, Empty, Loading } from "../parts/bits";
import { Missing } from "../parts/Dialog";
import { Failure } from "../parts/Failure";
import { type Column, Table } from "../parts/Table";
import { pageTitle } from "../state/badge";
import { notify } from "../state/notices";
import { count, readable } from "../state/words";
import type { JobSettings, Overtaken, Setting, SettingChange } from "../types";
import { type Edits, isSought, overtakenBy, overtakenWords, rangeWords, readEdits, settingValue } from "./settingEdits";

const GROUP: Record<string, [title: string, about: string]> = {
  failure: ["Hang", "Ops are in progress and none completes."],
  straggler: ["Slowdown", "Iterations take longer than they usually do."],
  idle: ["Idle", "No op is in flight anywhere."],
  silence: ["Silence", "A node or rank sends nothing while others do."],
  stages: ["Stages", "Which stage of a training step exposes the group's time."],
  rules: ["Rules", "What the search for the cause goes by."],
};

/** As wide as a phone: the width at which the style sheets turn tables into cards. */
const PHONE_PX = 720;

export function JobSettingsPage({ id }: { id: number }) {
  const [answer, setAnswer] = useState<JobSettings | null>(null);
  const [failure, setFailure] = useState<Error | null>(null);
  const load = () => void readJobSettings(id).then(setAnswer, setFailure);
  useEffect(load, [id]);
  useEffect(() => {
    pageTitle.value = answer ? `Settings of ${answer.job}` : "Settings";
  }, [answer?.job]);
  if (failure && !answer) return <Failure error={failure} again={load} />;
  if (!answer) return <Loading what="the settings" />;
  return (
    <div class="page job-settings">
      <div>
        <p>
          <a href={`/jobs/${id}`}>← {answer.job}</a>
        </p>
        <h1>Settings of {answer.job}</h1>
        <p class="faint">
          A change counts from the next look on, for this job only. Every diagnosis keeps the values it was made with.
        </p>
      </div>
      {answer.ignored.map((sentence) => (
        <p key={sentence} class="warning">
          {sentence}
        </p>
      ))}
      <Groups id={id} answer={answer} onChanged={setAnswer} />
      <History rows={answer.history} />
    </div>
  );
}

interface GroupsProps {
  id: number;
  answer: JobSettings;
  onChanged: (answer: JobSettings) => void;
}

function Groups({ id, answer, onChanged }: GroupsProps) {
  const [edits, setEdits] = useState<Edits>({});
  const [overtaken, setOvertaken] = useState<readonly Overtaken[]>([]);
  const [sought, setSought] = useState("");
  const found = answer.settings.filter((one) => isSought(one, sought));
  const mayChange = answer.may.includes("configure");
  const edit = (name: string, text: string | null) => setEdits({ ...edits, [name]: text });
  const columns = columnsOf(mayChange, edits, edit);
  const save = async (reason: string) => {
    const { changes } = readEdits(answer.settings, edits);
    try {
      onChanged(await changeJobSettings(id, changes, reason, answer.version));
      discard();
      notify(`${count(Object.keys(changes).length, "setting")} changed.`, "calm", "job settings");
      return true;
    } catch (error) {
      const late = error instanceof ApiError ? overtakenBy(error.answer) : null;
      if (late) {
        // What was typed stays, beside what the colleague made of it: who changes again knows what they overwrite.
        setOvertaken(late.overtaken);
        onChanged(late.settings);
      } else notify((error as Error).message, "bad", "job settings");
      return false;
    }
  };
  const discard = () => {
    setEdits({});
    setOvertaken([]);
  };
  return (
    <>
      <label class="setting-find">
        Find a setting
        <input
          type="search"
          value={sought}
          placeholder="a word or a name"
          onInput={(input) => setSought(input.currentTarget.value)}
        />
        <span class="faint" role="status">
          {sought.trim() && `${found.length} of ${count(answer.settings.length, "setting")}`}
        </span>
      </label>
      {[...new Set(found.map((one) => one.group))].map((group) => (
        <Group
          key={group}
          group={group}
          rows={found.filter((one) => one.group === group)}
          columns={columns}
          edits={edits}
          isSought={sought.trim() !== ""}
        />
      ))}
      {found.length === 0 && <Empty title="No setting has these words." />}
      {mayChange && (
        <SaveBar settings={answer.settings} edits={edits} overtaken={overtaken} onSave={save} onDiscard={discard} />
      )}
    </>
  );
}

interface GroupProps {
  group: string;
  rows: readonly Setting[];
  columns: Column<Setting>[];
  edits: Edits;
  /** These rows are what somebody looked for. */
  isSought: boolean;
}

/** A section that can be closed. On a phone it is at first, and says what is in it: all of them are 10,000 px long there. */
function Group({ group, rows, columns, edits, isSought }: GroupProps) {
  const [isWide] = useState(() => innerWidth > PHONE_PX);
  const [title, about] = GROUP[group] ?? [readable(group), ""];
  const isChanged = (one: Setting) => one.overridden || edits[one.name] !== undefined;
  const n = rows.filter(isChanged).length;
  return (
    <details class="setting-group" open={isSought || isWide}>
      <summary>
        <h2>{title}</h2>
        <span class="faint">
          {about} {count(rows.length, "setting")}
          {n > 0 && `, ${n} changed`}
        </span>
      </summary>
      <Table
        label={title}
        isCards
        columns={columns}
        rows={rows}
        rowKey={(one) => one.name}
        line={(one) => (isChanged(one) ? { class: "changed" } : {})}
      />
    </details>
  );
}

type Edit = (name: string, text: string | null) => void;

function columnsOf(mayChange: boolean, edits: Edits, edit: Edit): Column<Setting>[] {
  return [
    {
      word: "Setting",
      cell: (one) => (
        <>
          <span class="setting-about">{one.about}</span> <code class="faint">{one.name}</code>
        </>
      ),
    },
    {
      word: "Value",
      class: () => "setting-value",
      cell: (one) =>
        mayChange ? <ValueField setting={one} edits={edits} edit={edit} /> : settingValue(one.value, one.unit),
    },
    { word: "Default", isNumber: true, class: () => "faint", cell: (one) => settingValue(one.default, one.unit) },
    {
      word: "Range",
      isNumber: true,
      class: () => "faint",
      cell: rangeWords,
    },
    {
      word: "Changed",
      class: ({ overridden }) => (overridden ? "" : "unchanged"),
      cell: (one) => <Changed setting={one} />,
    },
  ];
}

function ValueField({ setting, edits, edit }: { setting: Setting; edits: Edits; edit: Edit }) {
  const { name, unit, whole, low, high } = setting;
  const edited = edits[name];
  const shown = edited === null ? setting.default : (edited ?? setting.value);
  const isDefault = edited === null || (edited === undefined && !setting.overridden);
  return (
    <span class="value-field">
      <input
        type="number"
        aria-label={`${name}, ${unit}`}
        min={low}
        max={high}
        step={whole ? 1 : "any"}
        value={shown}
        onInput={(input) => edit(name, input.currentTarget.value)}
      />
      <span class="faint">{unit}</span>
      {!isDefault && (
        <button type="button" class="small" onClick={() => edit(name, null)} aria-label={`Default of ${name}`}>
          Default
        </button>
      )}
    </span>
  );
}

function Changed({ setting: { overridden, changed_at, changed_by, reason } }: { setting: Setting }) {
  if (!overridden) return <span class="faint">–</span>;
  return (
    <>
      {changed_by}, <Ago at={changed_at} />
      {reason && <p class="faint">{reason}</p>}
    </>
  );
}

interface SaveBarProps {
  settings: readonly Setting[];
  edits: Edits;
  /** What colleagues changed meanwhile. */
  overtaken: readonly Overtaken[];
  /** Whether it was saved. */
  onSave: (reason: string) => Promise<boolean>;
  onDiscard: () => void;
}

/** Appears with the first change: what would change, why, and whether it may. */
function SaveBar({ settings, edits, overtaken, onSave, onDiscard }: SaveBarProps) {
  const [reason, setReason] = useState("");
  const [busy, setBusy] = useState(false);
  const { words, problems } = readEdits(settings, edits);
  if (words.length + problems.length + overtaken.length === 0) return null;
  const save = async () => {
    setBusy(true);
    if (await onSave(reason.trim())) setReason("");
    setBusy(false);
  };
  return (
    <form
      class="save-bar"
      aria-label="Changes"
      onSubmit={(submit) => {
        submit.preventDefault();
        if (reason.trim() && problems.length === 0) void save();
      }}
    >
      <ul>
        {overtaken.map((one) => (
          <li key={one.name} class="old" role="alert">
            {overtakenWords(one)} Nothing was changed: change again to overwrite it, or discard.
          </li>
        ))}
        {words.map((change) => (
          <li key={change}>{change}</li>
        ))}
        {problems.map((problem) => (
          <li key={problem} class="old" role="alert">
            {problem}
          </li>
        ))}
      </ul>
      <label for="settings-reason">Why?</label>
      <input
        id="settings-reason"
        required
        maxLength={2000}
        value={reason}
        onInput={(input) => setReason(input.currentTarget.value)}
      />
      <Missing what={[words.length > 0 && !reason.trim() && "why"]} />
      <button type="button" onClick={onDiscard}>
        Discard
      </button>
      <button
        type="submit"
        class="primary"
        disabled={busy || words.length === 0 || problems.length > 0 || !reason.trim()}
      >
        Change
      </button>
    </form>
  );
}

const HISTORY: Column<SettingChange>[] = [
  { word: "When", class: () => "nowrap", cell: ({ at }) => <Ago at={at} /> },
  { word: "Who", cell: ({ actor, actor_kind }) => (actor_kind === "api" ? `${actor}, through the API` : actor) },
  { word: "Setting", cell: ({ name }) => <code>{name}</code> },
  { word: "From", isNumber: true, cell: ({ before, unit }) => historyValue(before, unit) },
  { word: "To", isNumber: true, cell: ({ after, unit }) => historyValue(after, unit) },
  { word: "Why", cell: ({ reason }) => reason },
];

function historyValue(value: number | null, unit: string) {
  return value === null ? <span class="faint">default</span> : settingValue(value, unit);
}

function History({ rows }: { rows: readonly SettingChange[] }) {
  return (
    <section aria-labelledby="history">
      <div class="group-head">
        <h2 id="history">History</h2>
      </div>
      {rows.length === 0 ? (
        <Empty title="Nothing was ever changed: all values are the defaults." />
      ) : (
        <Table label="History" isCards columns={HISTORY} rows={rows} rowKey={(row) => row.id} />
      )}
    </section>
  );
}
