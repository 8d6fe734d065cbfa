/*
 * The smallest parts, used on every page: ages, chips, copyable names, empty states. Every state has a word and a
 * shape; colour only repeats them.
 */

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import type { IncidentRow, JobRow } from "../live/rows";
import { absolute, ageWords, aheadWords, serverNow, timeOfDay, zoneLabel } from "../state/clock";
import { announce } from "../state/notices";
import { blindWords, showsCondition, stateNow } from "../state/sight";
import { isSearching, type ShownState, shownState } from "../state/status";
import { faultWords, GRADE, JOB_STATE } from "../state/words";

export function Ago({ at, never = "never" }: { at: string | null; never?: string }) {
  if (!at) return <span class="faint">{never}</span>;
  return (
    <time dateTime={at} title={absolute(at)}>
      {ageWords(serverNow() - Date.parse(at))}
    </time>
  );
}

/** How long until a moment that is ahead: "for 43 min", "for 12 d". */
export function For({ until }: { until: string }) {
  return (
    <time dateTime={until} title={absolute(until)}>
      for {aheadWords(Date.parse(until) - serverNow())}
    </time>
  );
}

/** "in 4 s", "now" when it is over. */
export function In({ until }: { until: string }) {
  const left = Date.parse(until) - serverNow();
  return (
    <time dateTime={until} title={absolute(until)}>
      {left > 0 ? `in ${aheadWords(left)}` : "now"}
    </time>
  );
}

const DAY_MS = 86_400_000;

/** "until 12:13 UTC", with its day where that is not within a day. */
export function Until({ at }: { at: string }) {
  const isSoon = Date.parse(at) - serverNow() < DAY_MS;
  const words = isSoon ? `${timeOfDay(Date.parse(at)).slice(0, 5)} ${zoneLabel()}` : absolute(at, false);
  return (
    <time dateTime={at} title={absolute(at)}>
      until {words}
    </time>
  );
}

export const STATE_WORD: Record<ShownState, string> = {
  open: "Open",
  silenced: "Silenced",
  acknowledged: "Acknowledged",
  attached: "Attached",
  resolved: "Resolved",
};

export function StateChip({ row }: { row: IncidentRow }) {
  const state = shownState(row, serverNow());
  return (
    <span class={`chip state-${state}`}>
      <StateIcon state={state} />
      {STATE_WORD[state]}
    </span>
  );
}

function StateIcon({ state }: { state: ShownState }) {
  return (
    <svg class="chip-icon" viewBox="0 0 12 12" aria-hidden="true">
      {state === "open" && <circle cx="6" cy="6" r="5" fill="currentColor" />}
      {state === "acknowledged" && (
        <>
          <circle cx="6" cy="6" r="4.2" fill="none" stroke="currentColor" stroke-width="1.6" />
          <path d="M6 1.8a4.2 4.2 0 0 1 0 8.4z" fill="currentColor" />
        </>
      )}
      {state === "silenced" && (
        <path d="M9.7 7.6A4.6 4.6 0 0 1 4.2 2a4.600 4.600 0 1 0 5.5 5.600z" fill="currentColor" />
      )}
      {state === "attached" && (
        <path
          d="M3 1v5.500a2 2 0 0 0 2 2h5M7.500 6l2.500 2.500L7.500 11"
          fill="none"
          stroke="currentColor"
          stroke-width="1.6"
          stroke-linecap="round"
        />
      )}
      {state === "resolved" && (
        <path d="M1.5 6.5l3 3 6-7" fill="none" stroke="currentColor" stroke-width="1.8" stroke-linecap="round" />
      )}
    </svg>
  );
}

const CONDITION = {
  firing: { word: "still happening", title: "The last look still saw it." },
  clearing: { word: "clearing", title: "Recent looks were clean; a few more and it counts as over." },
  clear: { word: "no longer seen", title: "Looks have been clean for a while." },
};

export function ConditionChip({ row, job }: { row: IncidentRow; job: JobRow | undefined }) {
  if (!showsCondition(row)) return null;
  const { word, title } = CONDITION[row.condition];
  const blind = blindWords(row, job, serverNow());
  if (blind && row.state === "resolved") return null;
  if (blind) {
    return (
      <span class="condition condition-blind" title="Nobody can say whether it is still happening.">
        <i aria-hidden="true" />
        {blind}
      </span>
    );
  }
  return (
    <span class={`condition condition-${row.condition}`} title={title}>
      <i aria-hidden="true" />
      {word}
    </span>
  );
}

export function GradeMark({ grade, explain = false }: { grade: string; explain?: boolean }) {
  const known = GRADE[grade];
  if (!known) return null;
  return (
    <span class="grade" title={`${known.word} evidence: ${known.meaning}`}>
      <span class="grade-bars" aria-hidden="true">
        {[1, 2, 3].map((level) => (
          <i key={level} class={level <= known.level ? "on" : ""} />
        ))}
      </span>
      <span>
        <b>{known.word}</b>
        {explain ? ` evidence: ${known.meaning}` : " evidence"}
      </span>
    </span>
  );
}

/** The fault in words under a headline; nothing while nobody has named it. */
export function FaultWords({ row }: { row: IncidentRow }) {
  if (isSearching(row)) return <span>Looking for the cause …</span>;
  if (row.certainty === "suspected") return <span>no cause named</span>;
  return <span>{faultWords(row.fault_kind, row.symptom)}</span>;
}

export function JobStateMark({ job }: { job: JobRow }) {
  const { state, why } = stateNow(job, serverNow());
  return (
    <>
      <span class={`job-state job-${state}`}>
        <i aria-hidden="true" />
        {JOB_STATE[state] ?? state}
      </span>
      {why && <span class="state-why">{why}</span>}
    </>
  );
}

export function Copy({ text, label }: { text: string; label: string }) {
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    await putOnClipboard(text);
    setCopied(true);
    announce(`${label} copied`);
    setTimeout(() => setCopied(false), 1500);
  };
  return (
    <button type="button" class="copy" onClick={copy} aria-label={`Copy ${label} ${text}`} title={`Copy ${label}`}>
      <code>{text}</code>
      <svg viewBox="0 0 16 16" aria-hidden="true">
        {copied ? <path d="M3 8.5l3.5 3.5L13 4.5" /> : <path d="M6 5.5h7v8H6zM3.5 10.5h-1v-8h7v1" />}
      </svg>
    </button>
  );
}

/** The clipboard API wants a secure origin; plain HTTP falls back to a selected text field. */
export async function putOnClipboard(text: string): Promise<void> {
  if (navigator.clipboard) return navigator.clipboard.writeText(text).catch(() => undefined);
  const field = document.createElement("textarea");
  field.value = text;
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <p class="empty-title">{title}</p>
      {children}
    </div>
  );
}

export function Loading({ what }: { what: string }) {
  return (
    <p class="loading" role="status">
      Loading {what} …
    </p>
  );
}
