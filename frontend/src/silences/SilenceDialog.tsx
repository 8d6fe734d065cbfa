/*
 * Making a silence: what it matches, how long, why; and, before it is made, what it would silence now and would have
 * silenced in the last week.
 */

import { useEffect, useState } from "preact/hooks";
import { type Facets, readIncidents } from "../api";
import { type Matcher, makeSilence, previewSilence, type SilencePreview, type SilenceRow } from "../handling";
import type { IncidentRow } from "../live/rows";
import { Dialog, Missing } from "../parts/Dialog";
import { Refused, useSaying } from "../parts/useSaying";
import { serverNow, zone, zoneLabel } from "../state/clock";
import { notify } from "../state/notices";
import { session, team } from "../state/team";
import { count } from "../state/words";
import { beginsAt, DURATIONS } from "./durations";
import { FIELDS, filled, guessFor, type Known, knownValues, PLACEHOLDER, valuesOf } from "./matchers";

interface SilenceDialogProps {
  /** The incident it starts from. */
  row?: IncidentRow;
  kind?: SilenceRow["kind"];
  node?: string;
  minutes?: number;
  onClose: () => void;
  onMade?: () => void;
}

const PREVIEW_MS = 300;
const EMPTY: Matcher = { field: "job", values: [], is_not: false };

function firstMatchers({ row, kind, node }: SilenceDialogProps): Matcher[] {
  if (row) return guessFor(row);
  if (kind === "maintenance") return [{ field: "node", values: node ? [node] : [], is_not: false }];
  return [EMPTY];
}

export function SilenceDialog(props: SilenceDialogProps) {
  const { row, kind = "silence", onClose, onMade } = props;
  const [matchers, setMatchers] = useState<Matcher[]>(() => firstMatchers(props));
  const [minutes, setMinutes] = useState(props.minutes ?? 120);
  const [begins, setBegins] = useState("");
  const [reason, setReason] = useState("");
  const [team, setTeam] = useState<string>();
  const { busy, refused, say } = useSaying(onClose);
  const starts_at = beginsAt(begins, zone.value === "utc");
  const isAhead = starts_at !== null && Date.parse(starts_at) > serverNow();
  const isOfBegins = starts_at !== null && /\bbegin/i.test(refused);
  const asked = filled(matchers);
  const preview = usePreview(asked, team);
  const send = () =>
    say(async () => {
      const wanted = { matchers: asked, minutes, reason: reason.trim(), kind };
      await makeSilence({ ...wanted, ...(team ? { team } : {}), ...(starts_at ? { starts_at } : {}) });
      notify(doneWords(kind, isAhead), "calm", "silence");
      onMade?.();
    });
  return (
    <Dialog title={titleOf(kind, row)} onClose={onClose}>
      <form
        class="silence-form"
        onSubmit={(submit) => {
          submit.preventDefault();
          void send();
        }}
      >
        <Matchers matchers={matchers} onChange={setMatchers} row={row} />
        <TeamChoice team={team} onChoose={setTeam} />
        <label for="silence-begins">Begins ({zoneLabel()}); now if left empty</label>
        <input
          id="silence-begins"
          type="datetime-local"
          value={begins}
          aria-describedby={isOfBegins ? "silence-begins-refused" : undefined}
          aria-invalid={isOfBegins}
          onInput={(input) => setBegins(input.currentTarget.value)}
        />
        {isOfBegins && <Refused words={refused} id="silence-begins-refused" />}
        <label for="silence-minutes">How long</label>
        <select
          id="silence-minutes"
          value={String(minutes)}
          onChange={(change) => setMinutes(Number(change.currentTarget.value))}
        >
          {!DURATIONS.some(([one]) => one === minutes) && <option value={minutes}>{minutes} min</option>}
          {DURATIONS.map(([one, word]) => (
            <option key={one} value={one} selected={one === minutes}>
              {word}
            </option>
          ))}
        </select>
        <label for="silence-reason">Why?</label>
        <textarea
          id="silence-reason"
          rows={2}
          required
          maxLength={2000}
          value={reason}
          onInput={(input) => setReason(input.currentTarget.value)}
          onKeyDown={(press) => (press.ctrlKey || press.metaKey) && press.key === "Enter" && void send()}
        />
        <Preview {...preview} isAhead={isAhead} />
        {!isOfBegins && <Refused words={refused} />}
        <div class="dialog-actions">
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <Missing what={[asked.length === 0 && "what to match", !reason.trim() && "why"]} />
          <button type="submit" class="primary" disabled={busy || asked.length === 0 || !reason.trim()}>
            {buttonWords(kind, isAhead)}
          </button>
        </div>
      </form>
    </Dialog>
  );
}

function buttonWords(kind: SilenceRow["kind"], isAhead: boolean): string {
  if (isAhead) return kind === "silence" ? "Plan the silence" : "Plan maintenance";
  return kind === "silence" ? "Silence" : "Begin maintenance";
}

function doneWords(kind: SilenceRow["kind"], isAhead: boolean): string {
  if (isAhead) return "Planned: it stands under Ahead.";
  return kind === "silence" ? "Silenced." : "Maintenance noted.";
}

function titleOf(kind: SilenceRow["kind"], row: IncidentRow | undefined): string {
  if (kind === "maintenance") return "New maintenance";
  return row ? `Silence incident ${row.number} and its like` : "New silence";
}

interface MatchersProps {
  matchers: Matcher[];
  onChange: (matchers: Matcher[]) => void;
  row: IncidentRow | undefined;
}

function Matchers({ matchers, onChange, row }: MatchersProps) {
  const known = useKnown();
  const put = (n: number, change: Partial<Matcher>) =>
    onChange(matchers.map((one, at) => (at === n ? { ...one, ...change } : one)));
  return (
    <fieldset class="matchers">
      <legend>Incidents of which all of this holds</legend>
      {matchers.map((matcher, n) => (
        <div class="matcher" key={n}>
          <select
            aria-label={`Field ${n + 1}`}
            value={matcher.field}
            onChange={(change) => put(n, { field: change.currentTarget.value as Matcher["field"] })}
          >
            {FIELDS.map(([field, word]) => (
              <option key={field} value={field} selected={field === matcher.field}>
                {word}
              </option>
            ))}
          </select>
          <select
            aria-label={`Sign ${n + 1}`}
            value={matcher.is_not ? "not" : "is"}
            onChange={(change) => put(n, { is_not: change.currentTarget.value === "not" })}
          >
            <option value="is">is</option>
            <option value="not">is not</option>
          </select>
          <Values
            n={n}
            field={matcher.field}
            values={matcher.values}
            known={known(matcher.field)}
            onChange={(values) => put(n, { values })}
          />
          <button
            type="button"
            class="quiet"
            aria-label={`Remove line ${n + 1}`}
            disabled={matchers.length === 1}
            onClick={() => onChange(matchers.filter((_, at) => at !== n))}
          >
            ×
          </button>
        </div>
      ))}
      <div class="matcher-more">
        <button type="button" onClick={() => onChange([...matchers, EMPTY])} disabled={matchers.length >= 10}>
          And …
        </button>
        {row && (
          <button
            type="button"
            onClick={() => onChange([{ field: "incident", values: [String(row.number)], is_not: false }])}
          >
            Only incident {row.number}
          </button>
        )}
        <span class="faint">Several with commas: any of them. * stands for any characters.</span>
      </div>
    </fieldset>
  );
}

interface ValuesProps {
  n: number;
  field: Matcher["field"];
  values: string[];
  known: readonly Known[];
  onChange: (values: string[]) => void;
}

/** The text as it is typed: "a, " must not lose its comma before the next word. */
function Values({ n, field, values, known, onChange }: ValuesProps) {
  const [text, setText] = useState(values.join(", "));
  useEffect(() => {
    if (valuesOf(text).join() !== values.join()) setText(values.join(", "));
  }, [values.join()]);
  return (
    <>
      <input
        aria-label={`Values ${n + 1}`}
        value={text}
        placeholder={PLACEHOLDER[field]}
        list={`known-${n}`}
        autocomplete="off"
        onInput={(input) => {
          setText(input.currentTarget.value);
          onChange(valuesOf(input.currentTarget.value));
        }}
      />
      <datalist id={`known-${n}`}>
        {known.map(([value, word]) => (
          <option key={value} value={value}>
            {word}
          </option>
        ))}
      </datalist>
    </>
  );
}

/** What the values of a field may be, as far as the list of incidents and the jobs in sight tell. */
function useKnown(): (field: Matcher["field"]) => readonly Known[] {
  const [facets, setFacets] = useState<Facets | null>(null);
  useEffect(() => {
    readIncidents("").then(
      (answer) => setFacets(answer.facets),
      () => setFacets(null), // they only help with typing
    );
  }, []);
  const jobs = team.snapshot.value?.jobs.map((job) => job.name) ?? [];
  return (field) => knownValues(field, facets, jobs);
}

function TeamChoice({ team, onChoose }: { team: string | undefined; onChoose: (team: string) => void }) {
  const teams = Object.entries(session.value?.roles ?? {}).filter(([, role]) => role !== "viewer");
  useEffect(() => {
    if (!team && teams.length > 1) onChoose(teams[0][0]);
  }, [teams.length]);
  if (teams.length < 2) return null;
  return (
    <>
      <label for="silence-team">Team</label>
      <select id="silence-team" value={team} onChange={(change) => onChoose(change.currentTarget.value)}>
        {teams.map(([name]) => (
          <option key={name} value={name}>
            {name}
          </option>
        ))}
      </select>
    </>
  );
}

interface Previewed {
  preview: SilencePreview | null;
  refused: string;
}

function usePreview(matchers: Matcher[], team: string | undefined): Previewed {
  const [previewed, setPreviewed] = useState<Previewed>({ preview: null, refused: "" });
  const about = JSON.stringify([matchers, team]);
  useEffect(() => {
    if (matchers.length === 0) return setPreviewed({ preview: null, refused: "" });
    let isCurrent = true;
    const timer = setTimeout(() => {
      previewSilence(matchers, team).then(
        (preview) => isCurrent && setPreviewed({ preview, refused: "" }),
        (error: Error) => isCurrent && setPreviewed({ preview: null, refused: error.message }),
      );
    }, PREVIEW_MS);
    return () => {
      isCurrent = false;
      clearTimeout(timer);
    };
  }, [about]);
  return previewed;
}

function Preview({ preview, refused, isAhead }: Previewed & { isAhead: boolean }) {
  if (refused) return <p class="warning">{refused}</p>;
  if (!preview) return <p class="faint preview">What it would silence is shown here.</p>;
  return (
    <div class="preview" role="status">
      <p>
        <b>
          {preview.total === 0 ? "Silences no open incident" : `Silences ${count(preview.total, "incident")}`}
          {isAhead ? ", were it in force now." : " now."}
        </b>{" "}
        Of the last week’s {preview.checked.toLocaleString("en-US")} it would have silenced{" "}
        {preview.lately.toLocaleString("en-US")}.
      </p>
      <ul>
        {preview.incidents.slice(0, 5).map((row) => (
          <li key={row.number}>
            <span class="number">#{row.number}</span> {row.headline}
          </li>
        ))}
        {preview.total > 5 && <li class="faint">and {(preview.total - 5).toLocaleString("en-US")} more</li>}
        {(preview.left_out ?? 0) > 0 && (
          <li class="faint">
            {count(preview.left_out ?? 0, "older open incident was", "older open incidents were")} not looked at.
          </li>
        )}
      </ul>
    </div>
  );
}
