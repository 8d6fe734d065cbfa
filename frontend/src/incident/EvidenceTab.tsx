/* What the verdict rests on: measurements with units and sources, the conditions of Table 4, other explanations. */

import { GradeMark } from "../parts/bits";
import { ScrollBox } from "../parts/ScrollBox";
import { absolute } from "../state/clock";
import { COMPONENT, FLOW_STATE, numberWords, readable, worded } from "../state/words";
import type { Condition, Diagnosis, Evidence, Finding, Revision } from "../types";
import { agrees, type EndReading, type FlowCounters, flowCounters } from "./reading";

interface EvidenceTabProps {
  diagnosis: Diagnosis | null;
  revisions: Revision[];
}

export function EvidenceTab({ diagnosis, revisions }: EvidenceTabProps) {
  if (!diagnosis) return <p class="faint">There is no diagnosis yet; evidence appears with it.</p>;
  const [best, ...others] = diagnosis.findings;
  return (
    <>
      <SymptomLine diagnosis={diagnosis} />
      {best && best.evidence.length > 0 && <EvidenceTable rows={best.evidence} />}
      {best && best.conditions.length > 0 && <ConditionsTable finding={best} />}
      {others.length > 0 && <Others findings={others} />}
      {revisions.length > 1 && <Revisions rows={revisions} />}
      <Thresholds diagnosis={diagnosis} />
    </>
  );
}

function SymptomLine({ diagnosis }: { diagnosis: Diagnosis }) {
  return (
    <p class="symptom">
      <b>What the trigger saw:</b> {diagnosis.symptom.sentence}
    </p>
  );
}

function EvidenceTable({ rows }: { rows: Evidence[] }) {
  return (
    <ScrollBox class="table-box" label="Evidence">
      <table>
        <caption>Evidence for the verdict</caption>
        <thead>
          <tr>
            <th scope="col">What was measured</th>
            <th scope="col" class="num">
              Value
            </th>
            <th scope="col" class="num">
              Rank
            </th>
            <th scope="col">Source</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row, n) => (
            <tr key={n}>
              <Measured row={row} />
              <td class="num">{row.rank ?? "–"}</td>
              <td>
                <code>{row.source || "–"}</code>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </ScrollBox>
  );
}

function Measured({ row }: { row: Evidence }) {
  const flow = flowCounters(row);
  return (
    <>
      <th scope="row">{flow ? flow.flow : row.what}</th>
      <td class="num">
        {flow ? (
          <EndCounters flow={flow} />
        ) : (
          <>
            {typeof row.value === "number"
              ? row.value.toLocaleString("en-US", { maximumFractionDigits: 3 })
              : row.value}
            {row.unit && <span class="faint"> {row.unit}</span>}
          </>
        )}
      </td>
    </>
  );
}

function Counters({ end }: { end: EndReading }) {
  return (
    <dl>
      {end.counters.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

function EndCounters({ flow }: { flow: FlowCounters }) {
  return (
    <div class="ends">
      {flow.ends.map((end) => (
        <div key={end.who}>
          <p class="faint">{end.who}</p>
          {end.unseen ? <p>{end.unseen}</p> : <Counters end={end} />}
        </div>
      ))}
      <p class="faint">of {flow.total} chunks</p>
    </div>
  );
}

const VERDICT: Record<string, string> = {
  local: "its own side",
  remote: "the other side",
  undecided: "cannot be told",
  overruled: "overruled by direct evidence",
};

/** A cause of Table 4 as a cell: marked when the verdict agrees, muted when direct evidence says otherwise. */
function Cause({ row, side, finding }: { row: Condition; side: "local" | "remote"; finding: Finding }) {
  const cause = side === "local" ? row.local_cause : row.remote_cause;
  if (row.verdict !== side) return <td>{cause}</td>;
  if (agrees(row, finding)) return <td class="supported">{cause}</td>;
  return (
    <td>
      {cause} <span class="faint">{finding.grade === "strong" ? "overruled by direct evidence" : "overruled"}</span>
    </td>
  );
}

function ConditionsTable({ finding }: { finding: Finding }) {
  return (
    <ScrollBox class="table-box" label="Conditions">
      <table>
        <caption>Conditions that hold on its flows, with both readings</caption>
        <thead>
          <tr>
            <th scope="col">Flow</th>
            <th scope="col">Condition</th>
            <th scope="col" class="num">
              Counters
            </th>
            <th scope="col">If the fault is here</th>
            <th scope="col">If it is at the peer</th>
            <th scope="col">Both ends say</th>
          </tr>
        </thead>
        <tbody>
          {finding.conditions.map((row, n) => (
            <tr key={n}>
              <th scope="row">
                {row.rank} {row.direction.startsWith("r") ? "←" : "→"} {row.peer_rank}{" "}
                <span class="faint">ch {row.channel}</span>
              </th>
              <td>
                {FLOW_STATE[row.state]?.word ?? readable(row.state)}{" "}
                <code class="faint">{FLOW_STATE[row.state]?.formula}</code>
              </td>
              <td class="num" title="posted, ①, ②, ③ of all chunks">
                {row.counters.join(" · ")}
                <span class="faint"> / {row.total_chunks}</span>
              </td>
              <Cause row={row} side="local" finding={finding} />
              <Cause row={row} side="remote" finding={finding} />
              <td>{VERDICT[row.verdict] ?? row.verdict}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </ScrollBox>
  );
}

function Others({ findings }: { findings: Finding[] }) {
  return (
    <>
      <h3>Other explanations, less likely</h3>
      <ul class="others">
        {findings.map((finding) => (
          <li key={`${finding.rule} ${finding.subject.name}`}>
            <GradeMark grade={finding.grade} /> <span>{finding.sentence}</span>{" "}
            <span class="faint">
              {worded(COMPONENT, finding.component)}, rule {finding.rule}, score {finding.score.toFixed(2)}
            </span>
          </li>
        ))}
      </ul>
    </>
  );
}

function Revisions({ rows }: { rows: Revision[] }) {
  return (
    <details>
      <summary>The diagnosis was revised: {rows.length} versions</summary>
      <ol class="revisions">
        {rows.map((row) => (
          <li key={row.id}>
            <span class="faint">{absolute(row.at)}</span> {row.verdict}
          </li>
        ))}
      </ol>
    </details>
  );
}

function Thresholds({ diagnosis }: { diagnosis: Diagnosis }) {
  const numbers = { ...diagnosis.symptom.numbers, ...diagnosis.thresholds };
  if (Object.keys(numbers).length === 0) return null;
  return (
    <details>
      <summary>Numbers and thresholds in force</summary>
      <dl class="numbers">
        {Object.entries(numbers)
          .map(([name, value]) => numberWords(name, value))
          .map(([name, value]) => (
            <div key={`${name} ${value}`}>
              <dt>{name}</dt>
              <dd>{value}</dd>
            </div>
          ))}
      </dl>
    </details>
  );
}
