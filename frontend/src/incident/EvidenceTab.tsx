/* What the verdict rests on: measurements with units and sources, the conditions of Table 4, other explanations. */

import { GradeMark } from "../parts/bits";
import { ScrollBox } from "../parts/ScrollBox";
import { absolute } from "../state/clock";
import { COMPONENT, FLOW_STATE, numberWords, readable, worded } from "../state/words";
import type { Condition, Diagnosis, Evidence, Finding, Revision } from "../types";

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
      {best && best.conditions.length > 0 && <ConditionsTable rows={best.conditions} />}
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
              <th scope="row">{row.what}</th>
              <td class="num">
                {typeof row.value === "number"
                  ? row.value.toLocaleString("en-US", { maximumFractionDigits: 3 })
                  : row.value}
                {row.unit && <span class="faint"> {row.unit}</span>}
              </td>
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

const VERDICT: Record<string, string> = {
  local: "its own side",
  remote: "the other side",
  undecided: "cannot be told",
};

function ConditionsTable({ rows }: { rows: Condition[] }) {
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
          {rows.map((row, n) => (
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
              <td class={row.verdict === "local" ? "supported" : ""}>{row.local_cause}</td>
              <td class={row.verdict === "remote" ? "supported" : ""}>{row.remote_cause}</td>
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
