/* How fast it went: first symptom, triggered, root-caused, acknowledged, resolved, and the time between them. */

import type { IncidentRow, TimelineRow } from "../live/rows";
import { absolute, serverNow, spanWords, timeOfDay } from "../state/clock";

interface Moment {
  word: string;
  at: string | null;
}

/** When it was first acknowledged: reopening takes back who has it, not what happened; the scorecard counts this one too. */
export function firstAcknowledged(row: IncidentRow, timeline: readonly TimelineRow[]): string | null {
  return timeline.find((entry) => entry.verb === "acknowledged")?.at ?? row.acknowledged_at;
}

/** Who reads "acknowledged" takes it that it holds since then: one that was taken back is called the first. */
export function acknowledgedWord(row: IncidentRow, timeline: readonly TimelineRow[]): string {
  return firstAcknowledged(row, timeline) === row.acknowledged_at ? "Acknowledged" : "First acknowledged";
}

export function ClockStrip({ row, timeline = [] }: { row: IncidentRow; timeline?: readonly TimelineRow[] }) {
  const moments: Moment[] = [
    { word: "First symptom", at: row.first_symptom_at },
    { word: "Triggered", at: row.triggered_at },
    { word: "Root-caused", at: row.root_caused_at },
    { word: acknowledgedWord(row, timeline), at: firstAcknowledged(row, timeline) },
    { word: "Resolved", at: row.resolved_at },
  ];
  const last = row.state === "resolved" ? null : serverNow() - Date.parse(row.first_symptom_at);
  return (
    <ol class="clock-strip" aria-label="Clock of this incident">
      {moments.map((moment, n) => (
        <Step key={moment.word} moment={moment} before={moments.slice(0, n).findLast((one) => one.at)?.at ?? null} />
      ))}
      {last !== null && (
        <li class="clock-total">
          <b>{spanWords(last)}</b>
          <span>since it began</span>
        </li>
      )}
    </ol>
  );
}

function Step({ moment, before }: { moment: Moment; before: string | null }) {
  const span = moment.at && before ? Date.parse(moment.at) - Date.parse(before) : null;
  return (
    <li class={moment.at ? "done" : ""}>
      <span class="clock-word">{moment.word}</span>
      {moment.at ? (
        <time dateTime={moment.at} title={absolute(moment.at)}>
          {timeOfDay(Date.parse(moment.at), 1)}
        </time>
      ) : (
        <span class="faint">not yet</span>
      )}
      {span !== null && span >= 0 && <span class="clock-span">+{spanWords(span)}</span>}
    </li>
  );
}
