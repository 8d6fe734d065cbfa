/*
 * The head of an incident's page: its state, who has it, what it belongs to, who else looks at it, the way to the
 * neighbours in the list one came from, and a link that shows a colleague the same.
 */

import { useState } from "preact/hooks";
import type { IncidentAnswer, Review } from "../api";
import { readNeighbours } from "../handling";
import type { IncidentRow, JobRow } from "../live/rows";
import { looking } from "../live/streams";
import { Ago, ConditionChip, For, putOnClipboard, StateChip, Until } from "../parts/bits";
import { useAnswer } from "../parts/useAnswer";
import { permalink } from "../state/address";
import { serverNow, timeOfDay, zone, zoneLabel } from "../state/clock";
import { cameFrom, incidentHref } from "../state/list";
import { announce } from "../state/notices";
import { assignedTo, isSilenced, whoHas } from "../state/status";
import { session } from "../state/team";
import { REVIEW, SYMPTOM, worded } from "../state/words";
import type { Lanes } from "../types";

export interface Neighbours {
  previous: number | null;
  next: number | null;
}

/** In the list one came from; all incidents when one came from nowhere. */
export function useNeighbours(answer: IncidentAnswer): Neighbours {
  const filters = cameFrom();
  const { number } = answer.incident;
  const asked = useAnswer(`neighbours ${number} ${filters}`, () =>
    filters ? readNeighbours(number, `?${filters}`) : Promise.resolve(null),
  );
  if (!filters) return { previous: answer.previous, next: answer.next };
  return asked.value ?? { previous: null, next: null };
}

interface HeadProps extends Neighbours {
  row: IncidentRow;
  answer: IncidentAnswer;
  job: JobRow;
  lanes: Lanes | null;
}

export function Head({ row, answer, job, previous, next, lanes }: HeadProps) {
  const filters = cameFrom();
  return (
    <div class="incident-head">
      <div class="incident-facts">
        <StateChip row={row} />
        <ConditionChip row={row} job={job} />
        <span>
          <b>#{row.number}</b> {worded(SYMPTOM, row.symptom)} in <a href={`/jobs/${row.job_id}`}>{row.job}</a>{" "}
          <span class="faint">attempt {row.attempt}</span>
        </span>
        <span class="faint">
          opened <Ago at={row.opened_at} />
        </span>
        <Handled row={row} />
        <Belongs row={row} answer={answer} />
        {answer.review && <Reviewed review={answer.review} />}
        <Looking number={row.number} first={answer.looking} />
      </div>
      <nav class="neighbours" aria-label="Other incidents">
        <CopyLink lanes={lanes} />
        {filters && <a href={`/incidents?${filters}`}>List</a>}
        <Neighbour number={next} filters={filters} word="Newer incident" sign="‹" />
        <Neighbour number={previous} filters={filters} word="Older incident" sign="›" />
      </nav>
    </div>
  );
}

function Handled({ row }: { row: IncidentRow }) {
  return (
    <>
      {whoHas(row) && (
        <span>
          <b>{whoHas(row)}</b> has it, <Ago at={row.acknowledged_at} />
          {row.acknowledged_until && (
            <>
              , <For until={row.acknowledged_until} />
            </>
          )}
        </span>
      )}
      {assignedTo(row) && (
        <span>
          assigned to <b>{assignedTo(row)}</b>
        </span>
      )}
      {row.silenced_until && isSilenced(row, serverNow()) && (
        <a class="tag" href="/silences" title={`Silence ${row.silence}: nobody is told of it.`}>
          <span>
            silenced <Until at={row.silenced_until} />
          </span>
        </a>
      )}
      {row.state === "resolved" && (
        <span>
          resolved <Ago at={row.resolved_at} />
          {row.resolution ? `: ${row.resolution}` : ""}
        </span>
      )}
      {row.state === "resolved" && row.condition === "firing" && (
        <span class="tag">resolved by a person while looks still see it</span>
      )}
    </>
  );
}

function Belongs({ row, answer }: { row: IncidentRow; answer: IncidentAnswer }) {
  return (
    <>
      {!answer.pages && row.state !== "resolved" && (
        <span class="tag" title="It waits for evidence that nothing harmless explains it.">
          pages nobody yet{answer.dumps_wanted.includes("stacks") ? ": stacks are asked for first" : ""}
        </span>
      )}
      {row.severity !== "high" && <span class="tag">{row.severity} severity</span>}
      {row.regressed && <span class="tag">came back after it was resolved</span>}
      {row.recurrence_of !== null && (
        <a class="tag" href={`/incidents/${row.recurrence_of}`}>
          happened before: #{row.recurrence_of}
        </a>
      )}
      {row.attached_to !== null && (
        <a class="tag" href={`/incidents/${row.attached_to}`}>
          part of #{row.attached_to}
        </a>
      )}
      {answer.attached.length > 0 && (
        <span>
          attached:{" "}
          {answer.attached.slice(0, 8).map((one) => (
            <a key={one.number} class="tag" href={`/incidents/${one.number}`} title={one.headline}>
              #{one.number} {one.job}
            </a>
          ))}
          {row.n_attached > 8 && ` and ${row.n_attached - 8} more`}
        </span>
      )}
    </>
  );
}

const VERDICT: Record<Review["verdict"], string> = {
  right: "verdict right",
  partly: "verdict partly right",
  wrong: "verdict wrong",
  unknown: "verdict not judged",
};

function Reviewed({ review }: { review: Review }) {
  return (
    <span class="tag" title={`${review.actor} said so. ${review.cause}`}>
      afterwards: {worded(REVIEW, review.alarm)}, {VERDICT[review.verdict]}
    </span>
  );
}

function Looking({ number, first }: { number: number; first: string[] }) {
  const me = session.value?.user;
  const others = (looking.value[`incident:${number}`] ?? first).filter((name) => name !== me);
  if (others.length === 0) return null;
  const shown = others.slice(0, 3).join(", ");
  return (
    <span class="looking" title={others.join(", ")}>
      <i aria-hidden="true" />
      {shown}
      {others.length > 3 ? ` and ${others.length - 3} more` : ""} {others.length === 1 ? "looks" : "look"} at it too
    </span>
  );
}

function CopyLink({ lanes }: { lanes: Lanes | null }) {
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    await putOnClipboard(permalink(zone.value, lanes ? [lanes.from_ns / 1e6, lanes.to_ns / 1e6] : null));
    setCopied(true);
    announce("Link copied");
    setTimeout(() => setCopied(false), 1500);
  };
  return (
    <button
      type="button"
      class="quiet"
      onClick={copy}
      title="A link that shows the same: tab, rank, time and zone. Without the pin, what is newest."
    >
      {copied ? "Copied" : "Copy link"}
    </button>
  );
}

interface NeighbourProps {
  number: number | null;
  filters: string;
  word: string;
  sign: string;
}

function Neighbour({ number, filters, word, sign }: NeighbourProps) {
  if (number === null) return null;
  return (
    <a href={incidentHref(number, filters)} aria-label={`${word}, ${number}`} title={word}>
      {sign} #{number}
    </a>
  );
}

/** Says that the flows are of the time a link has pinned, and lets go of it. */
export function PinnedTime({ time, onFree }: { time: readonly [number, number]; onFree: () => void }) {
  return (
    <p class="pinned-time">
      Flows of {timeOfDay(time[0])} to {timeOfDay(time[1])} {zoneLabel()}, as the link says.
      <button type="button" onClick={onFree}>
        Show the time of the fault
      </button>
    </p>
  );
}
