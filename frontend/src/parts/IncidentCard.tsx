/*
 * An incident as the Now page shows it: the sentence first, then who started it and how sure we are, then what to do.
 */

import { useEffect, useRef } from "preact/hooks";
import type { IncidentRow, JobRow } from "../live/rows";
import { actOn, isUnderWay } from "../state/actions";
import { assignedTo, isSearching, whoHas } from "../state/status";
import { mayAct } from "../state/team";
import { COMPONENT, count, SYMPTOM, suspectWords, worded } from "../state/words";
import { Ago, ConditionChip, FaultWords, GradeMark, StateChip } from "./bits";

interface IncidentCardProps {
  row: IncidentRow;
  job: JobRow | undefined;
  chosen: boolean;
  onChoose: () => void;
}

export function IncidentCard({ row, job, chosen, onChoose }: IncidentCardProps) {
  const box = useRef<HTMLElement>(null);
  useEffect(() => {
    if (chosen) box.current?.scrollIntoView?.({ block: "nearest" });
  }, [chosen]);
  return (
    <article ref={box} class={`incident-card card-${row.state} ${chosen ? "chosen" : ""}`} onFocusIn={onChoose}>
      <div class="card-top">
        <StateChip row={row} />
        <ConditionChip row={row} job={job} />
        <span>
          {worded(SYMPTOM, row.symptom)} in <a href={`/jobs/${row.job_id}`}>{row.job}</a>{" "}
          <span class="faint">attempt {row.attempt}</span>
        </span>
        <span class="faint card-age">
          <Ago at={row.opened_at} />
        </span>
      </div>
      <h3>
        <a class="stretched" href={`/incidents/${row.number}`} aria-current={chosen ? "true" : undefined}>
          {row.headline}
        </a>
      </h3>
      <CardFacts row={row} />
      <div class="card-actions">
        {row.state === "open" && mayAct.value && (
          <button
            type="button"
            class="primary"
            disabled={isUnderWay(row.number)}
            onClick={() => void actOn(row, "acknowledge")}
          >
            Acknowledge
          </button>
        )}
        {whoHas(row) && (
          <span>
            {whoHas(row)} has it, <Ago at={row.acknowledged_at} />
          </span>
        )}
        {assignedTo(row) && <span>assigned to {assignedTo(row)}</span>}
        <a href={`/incidents/${row.number}`} class="open-link" aria-label={`Open incident ${row.number}`}>
          #{row.number} →
        </a>
      </div>
    </article>
  );
}

function CardFacts({ row }: { row: IncidentRow }) {
  const who = suspectWords(row, 4);
  return (
    <dl class="facts">
      <div class="fact-culprit">
        <dt>Started by</dt>
        <dd>{who || (isSearching(row) ? "looking …" : "nobody named")}</dd>
      </div>
      {row.certainty === "diagnosed" && (
        <div>
          <dt>Component</dt>
          <dd>{worded(COMPONENT, row.component)}</dd>
        </div>
      )}
      <div>
        <dt>How sure</dt>
        <dd>
          {row.certainty === "suspected" ? <FaultWords row={row} /> : null}
          {row.certainty === "diagnosed" && (row.grade ? <GradeMark grade={row.grade} /> : "cannot tell")}
        </dd>
      </div>
      <div>
        <dt>Only waiting</dt>
        <dd>{row.n_victims > 0 ? count(row.n_victims, "rank") : "none known"}</dd>
      </div>
    </dl>
  );
}
