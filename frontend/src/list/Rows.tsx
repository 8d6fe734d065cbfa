/* The rows of the list of incidents: a box to mark it, its state, the sentence, who it was and how long ago. */

import { useEffect, useRef } from "preact/hooks";
import type { IncidentRow } from "../live/rows";
import { Ago, ConditionChip, GradeMark, StateChip } from "../parts/bits";
import { incidentHref } from "../state/list";
import type { Marks } from "../state/marks";
import type { Selection } from "../state/selection";
import { assignedTo, isSearching, whoHas } from "../state/status";
import { liveJob, mayAct } from "../state/team";
import { COMPONENT, count, REVIEW, SYMPTOM, suspectWords, worded } from "../state/words";

interface RowsProps {
  rows: IncidentRow[];
  selection: Selection;
  marks: Marks;
  filters: string;
}

export function Rows({ rows, selection, marks, filters }: RowsProps) {
  return (
    <ol class={`incident-list ${mayAct.value ? "may-mark" : ""}`}>
      {rows.map((row) => (
        <Row
          key={row.number}
          row={row}
          filters={filters}
          chosen={row.number === selection.chosen}
          marked={marks.has(row.number)}
          onChoose={() => selection.choose(row.number)}
          onMark={() => marks.toggle(row.number)}
        />
      ))}
    </ol>
  );
}

interface RowProps {
  row: IncidentRow;
  filters: string;
  chosen: boolean;
  marked: boolean;
  onChoose: () => void;
  onMark: () => void;
}

function Row({ row, filters, chosen, marked, onChoose, onMark }: RowProps) {
  const line = useRef<HTMLLIElement>(null);
  useEffect(() => {
    if (chosen) line.current?.scrollIntoView?.({ block: "nearest" });
  }, [chosen]);
  return (
    <li ref={line} class={`${chosen ? "chosen" : ""} ${marked ? "marked" : ""}`} onFocusIn={onChoose}>
      {mayAct.value && (
        <label class="mark">
          <input type="checkbox" checked={marked} onChange={onMark} aria-label={`Mark incident ${row.number}`} />
        </label>
      )}
      <StateChip row={row} />
      <div class="row-main">
        <a class="stretched" href={incidentHref(row.number, filters)} aria-current={chosen ? "true" : undefined}>
          <span class="number">#{row.number}</span> {row.headline}
        </a>
        <RowFacts row={row} />
      </div>
      <div class="row-who">
        {row.n_suspects > 0 && <b>{suspectWords(row, 3)}</b>}
        <span class="faint">
          {row.certainty === "diagnosed"
            ? worded(COMPONENT, row.component)
            : isSearching(row)
              ? "looking …"
              : "nobody named"}
        </span>
      </div>
      <div class="row-grade">
        <GradeMark grade={row.grade} />
        {(row.n_victims > 0 || row.certainty === "diagnosed") && (
          <span class="faint">{count(row.n_victims, "rank")} waiting</span>
        )}
      </div>
      <div class="row-age">
        <Ago at={row.opened_at} />
      </div>
    </li>
  );
}

function RowFacts({ row }: { row: IncidentRow }) {
  const [who, assigned] = [whoHas(row), assignedTo(row)];
  return (
    <div class="row-facts">
      <span>{worded(SYMPTOM, row.symptom)}</span>
      <span>{row.job}</span>
      {row.nodes.length > 0 && (
        <span>
          {row.nodes.slice(0, 2).join(", ")}
          {row.nodes.length > 2 ? " …" : ""}
        </span>
      )}
      <ConditionChip row={row} job={liveJob(row.job_id)} />
      {row.regressed && <span class="tag">came back</span>}
      {row.recurrence_of !== null && <span class="tag">again after #{row.recurrence_of}</span>}
      {row.attached_to !== null && <span class="tag">part of #{row.attached_to}</span>}
      {row.n_attached > 0 && <span class="tag">{row.n_attached} attached</span>}
      {row.review && <span class="tag">{worded(REVIEW, row.review)}</span>}
      {who && <span>{who} has it</span>}
      {assigned && <span>assigned to {assigned}</span>}
    </div>
  );
}
