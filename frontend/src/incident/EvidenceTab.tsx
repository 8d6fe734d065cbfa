/*
 * What the verdict rests on: measurements with units and sources, the conditions of Table 4, other explanations, the
 * numbers in force and the clocks of the nodes.
 */

import { GradeMark } from "../parts/bits";
import { type Column, Table } from "../parts/Table";
import { absolute } from "../state/clock";
import { COMPONENT, count, FLOW_STATE, numberWords, readable, worded } from "../state/words";
import type { Condition, Diagnosis, Finding, NodeClock, Revision } from "../types";
import { quantity } from "./compare";
import { EvidenceTable } from "./EvidenceTable";
import { agrees } from "./reading";

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
      {best && best.evidence.length > 0 && <EvidenceTable rows={best.evidence} caption="Evidence for the verdict" />}
      {best && best.conditions.length > 0 && <ConditionsTable finding={best} />}
      {others.length > 0 && <Others findings={others} />}
      {revisions.length > 1 && <Revisions rows={revisions} />}
      <Thresholds diagnosis={diagnosis} />
      <Clocks clocks={diagnosis.clocks} />
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

const VERDICT: Record<string, string> = {
  local: "its own side",
  remote: "the other side",
  undecided: "cannot be told",
  overruled: "overruled by direct evidence",
};

/** A cause of Table 4: marked when the verdict agrees, muted when direct evidence says otherwise. */
function causeColumn(side: "local" | "remote", word: string, finding: Finding): Column<Condition> {
  return {
    word,
    class: (row) => (row.verdict === side && agrees(row, finding) ? "supported" : ""),
    cell: (row) => (
      <>
        {side === "local" ? row.local_cause : row.remote_cause}
        {row.verdict === side && !agrees(row, finding) && (
          <span class="faint"> {finding.grade === "strong" ? "overruled by direct evidence" : "overruled"}</span>
        )}
      </>
    ),
  };
}

const conditionColumns = (finding: Finding): Column<Condition>[] => [
  {
    word: "Flow",
    cell: (row) => (
      <>
        {row.rank} {row.direction.startsWith("r") ? "←" : "→"} {row.peer_rank}{" "}
        <span class="faint">ch {row.channel}</span>
      </>
    ),
  },
  {
    word: "Condition",
    cell: (row) => (
      <>
        {FLOW_STATE[row.state]?.word ?? readable(row.state)} <code class="faint">{FLOW_STATE[row.state]?.formula}</code>
      </>
    ),
  },
  {
    word: "Counters",
    title: "posted, ①, ②, ③ of all chunks",
    isNumber: true,
    cell: (row) => (
      <>
        {row.counters.join(" · ")}
        <span class="faint"> / {row.total_chunks}</span>
      </>
    ),
  },
  causeColumn("local", "If the fault is here", finding),
  causeColumn("remote", "If it is at the peer", finding),
  { word: "Both ends say", cell: (row) => VERDICT[row.verdict] ?? row.verdict },
];

function ConditionsTable({ finding }: { finding: Finding }) {
  return (
    <Table
      label="Conditions"
      caption="Conditions that hold on its flows, with both readings"
      isCards
      columns={conditionColumns(finding)}
      rows={finding.conditions}
      rowKey={(_, n) => n}
    />
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

const CLOCK_COLUMNS: Column<NodeClock>[] = [
  { word: "Node", cell: ({ node }) => <code>{node}</code> },
  {
    word: "Ahead of the others",
    isNumber: true,
    cell: ({ offset_ns }) => `${offset_ns < 0 ? "−" : "+"}${quantity(Math.abs(offset_ns), "ns")}`,
  },
  { word: "Plus or minus", isNumber: true, cell: ({ error_ns }) => quantity(error_ns, "ns") },
];

/** Clocks of the nodes, read off the ends of collectives, the farthest off first. */
function Clocks({ clocks }: { clocks: readonly NodeClock[] }) {
  if (clocks.length === 0) return null;
  const sorted = [...clocks].sort((a, b) => Math.abs(b.offset_ns) - Math.abs(a.offset_ns));
  return (
    <details>
      <summary>
        Clocks of {count(clocks.length, "node")}, apart by {quantity(spread(clocks), "ns")} at most
      </summary>
      <Table label="Clocks" isCards columns={CLOCK_COLUMNS} rows={sorted} rowKey={(clock) => clock.node} />
    </details>
  );
}

function spread(clocks: readonly NodeClock[]): number {
  const offsets = clocks.map((clock) => clock.offset_ns);
  return Math.max(...offsets) - Math.min(...offsets);
}
