/*
 * The one glance: the verdict as the page's title, how sure we are in words, who started it with names to copy, who
 * only waits, and what to do next.
 */

import type { ComponentChildren } from "preact";
import type { SeenBefore } from "../api";
import type { IncidentRow, TimelineRow } from "../live/rows";
import { Ago, Copy, GradeMark } from "../parts/bits";
import { actOn, isUnderWay } from "../state/actions";
import { suspectsOf } from "../state/roles";
import { isSearching } from "../state/status";
import { COMPONENT, count, faultWords, inOrder, LAYER, rankRanges, subjectWords, worded } from "../state/words";
import type { Cover, Diagnosis, Finding, GridColumns } from "../types";
import { coverWords, slowerWords } from "./compare";
import { adviceLines, answerToAsked, stanceOf } from "./reading";

/** What the verdict shows of an incident; a bundle has as much without being one. */
export type VerdictRow = Pick<
  IncidentRow,
  "headline" | "certainty" | "condition" | "grade" | "culprits" | "n_culprits" | "n_victims" | "symptom"
>;

/** Names up to this stand two beside each other. */
const SHORT_MAX = 14;

interface VerdictProps {
  row: VerdictRow;
  diagnosis: Diagnosis | null;
  grid: GridColumns | null;
  seenBefore: readonly SeenBefore[];
  onSelect: (rank: number | null) => void;
  /** Beside how sure we are: asking for another diagnosis. */
  children?: ComponentChildren;
  /** In the card of who started it: the way to their pages. */
  links?: ComponentChildren;
}

export function Verdict({ row, diagnosis, grid, seenBefore, onSelect, children, links }: VerdictProps) {
  const finding = diagnosis?.findings[0] ?? null;
  // The cause was looked for, nobody stands out, and no look goes on searching.
  const isSearched = diagnosis !== null && row.certainty === "suspected" && !isSearching(row);
  const slower = diagnosis ? slowerWords(diagnosis.symptom) : "";
  return (
    <section class="verdict" aria-label="Verdict">
      <h1>{row.headline}</h1>
      <p class="verdict-grade">
        <HowSure row={row} finding={finding} isSearched={isSearched} />
        {slower && <span class="faint">{slower}</span>}
        {children}
      </p>
      {diagnosis && <Agreement diagnosis={diagnosis} headline={row.headline} />}
      <div class="verdict-cards">
        <Culprit
          row={row}
          finding={finding}
          isSearched={isSearched}
          grid={grid}
          seenBefore={seenBefore}
          onSelect={onSelect}
          links={links}
        />
        <Victims row={row} diagnosis={diagnosis} />
        <Advice row={row} finding={finding} isSearched={isSearched} />
      </div>
    </section>
  );
}

interface DiagnoseAgainProps {
  row: IncidentRow;
  mayDiagnose: boolean;
  /** A diagnosis is asked for and not there yet. */
  isAsked: boolean;
  timeline: readonly TimelineRow[];
  onActed: () => void;
}

export function DiagnoseAgain({ row, mayDiagnose, isAsked, timeline, onActed }: DiagnoseAgainProps) {
  const said = isAsked ? null : answerToAsked(timeline);
  return (
    <>
      {mayDiagnose && !isAsked && (
        <button
          type="button"
          class="small"
          disabled={isUnderWay(row.number, "diagnose")}
          onClick={() => void actOn(row, "diagnose").then(onActed)}
        >
          Diagnose again
        </button>
      )}
      <span role="status" class="faint">
        {isAsked && "diagnosing …"}
        {said && (
          <>
            {said.words} (<Ago at={said.at} />)
          </>
        )}
      </span>
    </>
  );
}

/** In which layer the trouble is, and what each source says of it: agrees, differs, or was not asked. */
function Agreement({ diagnosis, headline }: { diagnosis: Diagnosis; headline: string }) {
  const { agreement, layer, missing } = diagnosis;
  if (agreement.length === 0 && !layer) return null;
  return (
    <div class="agreement">
      {layer && (
        <span class="tag layer" title={LAYER[layer]}>
          Layer: <b>{layer}</b>
        </span>
      )}
      <ul aria-label="What each source says">
        {agreement.map((sentence) => {
          const { stance, words } = stanceOf(sentence, headline, missing);
          return (
            <li key={sentence} class={`stance-${stance}`} title={sentence}>
              {words}
            </li>
          );
        })}
      </ul>
    </div>
  );
}

interface FoundProps {
  row: VerdictRow;
  finding: Finding | null;
  isSearched: boolean;
}

function HowSure({ row, finding, isSearched }: FoundProps) {
  if (isSearched) return <span>It was looked for, and nobody stands out.</span>;
  if (row.certainty === "suspected") return <span class="suspected">Suspected. The cause is being looked for.</span>;
  if (!finding && row.culprits.length > 0) return <GradeMark grade={row.grade} explain />;
  if (!finding) return <span>Nobody can be named from what was seen.</span>;
  return (
    <>
      <GradeMark grade={finding.grade} explain />
      <span class="faint">
        {worded(COMPONENT, finding.component)}, {faultWords(finding.kind, row.symptom)}
        {finding.tied.length > 0 &&
          (finding.culprits.length > 0
            ? `; cannot be told from ${finding.tied.map(subjectWords).join(", ")} by what was seen`
            : "; which of them it is cannot be told from what was seen")}
      </span>
    </>
  );
}

interface CulpritProps extends FoundProps {
  grid: GridColumns | null;
  seenBefore: readonly SeenBefore[];
  onSelect: (rank: number | null) => void;
  links?: ComponentChildren;
}

function Culprit({ row, finding, isSearched, grid, seenBefore, onSelect, links }: CulpritProps) {
  const ranks = row.culprits.length > 0 ? row.culprits : (finding?.culprits ?? []);
  if (ranks.length === 0) {
    return (
      <div class={`card culprit-card nobody ${tiedOf(finding).length > 0 ? "tied" : ""}`}>
        <h2>Started by</h2>
        <p class="big">{row.certainty === "suspected" && !isSearched ? "Looking …" : nobodyOr(finding)}</p>
        {finding && <p>{subjectWords(finding.subject)}</p>}
        <Suspects ranks={tiedOf(finding)} grid={grid} onSelect={onSelect} />
        <CoverSteps steps={finding?.cover ?? []} />
      </div>
    );
  }
  return (
    <div class="card culprit-card">
      <h2>Started by</h2>
      {finding?.subject.kind === "rack" && <p class="big">Rack {finding.subject.name}</p>}
      <p class={finding?.subject.kind === "rack" ? "" : "big"}>
        <button type="button" class="link" onClick={() => onSelect(ranks[0])} title="Show its flows">
          {ranks.length === 1 ? "Rank" : "Ranks"} {rankRanges(ranks, 4)}
        </button>
        {row.n_culprits > ranks.length && <span class="faint"> of {row.n_culprits}</span>}
      </p>
      <Names rank={ranks[0]} several={ranks.length > 1} finding={finding} grid={grid} />
      {links}
      <CoverSteps steps={finding?.cover ?? []} />
      <BlamedBefore rows={seenBefore} />
    </div>
  );
}

/** Of a tie: the ranks it leaves open, of which one is to blame. */
function nobodyOr(finding: Finding | null): string {
  const tied = tiedOf(finding);
  return tied.length > 0 ? `One of ranks ${rankRanges(tied, 4)}` : "Nobody named";
}

function tiedOf(finding: Finding | null): number[] {
  const suspects = suspectsOf(finding);
  return suspects.length > 1 ? suspects : [];
}

const SUSPECTS_SHOWN = 8;

/** Of a tie: each of them by its names, to look at in turn. */
function Suspects({ ranks, grid, onSelect }: Pick<CulpritProps, "grid" | "onSelect"> & { ranks: readonly number[] }) {
  if (ranks.length === 0) return null;
  return (
    <ul class="suspects">
      {ranks.slice(0, SUSPECTS_SHOWN).map((rank) => (
        <li key={rank}>
          <button type="button" class="link" onClick={() => onSelect(rank)} title="Show its flows">
            rank {rank}
          </button>{" "}
          <span class="faint">
            {namesOf(rank, grid)
              .map(([what, name]) => (what === "pid" ? `pid ${name}` : name))
              .join(" · ")}
          </span>
        </li>
      ))}
      {ranks.length > SUSPECTS_SHOWN && <li class="faint">and {count(ranks.length - SUSPECTS_SHOWN, "more rank")}</li>}
    </ul>
  );
}

/** What and name of node, GPU, NIC and process of a rank, as far as they are known. */
function namesOf(rank: number, grid: GridColumns | null): [string, string][] {
  const i = grid ? grid.rank.indexOf(rank) : -1;
  if (!grid || i < 0) return [];
  const names: [string, string][] = [
    ["node", grid.nodes[grid.node[i]] ?? ""],
    ["GPU", grid.gpu[i]],
    ["NIC", grid.nic[i]],
    ["pid", grid.pid[i] ? String(grid.pid[i]) : ""],
  ];
  return names.filter(([, name]) => name);
}

const BEFORE_SHOWN = 3;

/** The same GPU, NIC or node was blamed in an earlier incident: suspect before any rule has run. */
function BlamedBefore({ rows }: { rows: readonly SeenBefore[] }) {
  if (rows.length === 0) return null;
  return (
    <div class="blamed-before">
      <h3>Blamed before{rows.length > BEFORE_SHOWN ? `, ${rows.length} times in 30 days` : ""}</h3>
      <ul>
        {rows.slice(0, BEFORE_SHOWN).map((one) => (
          <li key={one.incident}>
            <a href={`/incidents/${one.incident}`}>#{one.incident}</a> {one.what}{" "}
            <span class="faint">
              <Ago at={one.at} />
            </span>
          </li>
        ))}
      </ul>
    </div>
  );
}

/** How far it reaches, from the smallest part that shows it to the largest: "1 of 32 flows", "all 8 ranks of node-1". */
function CoverSteps({ steps }: { steps: readonly Cover[] }) {
  if (steps.length === 0) return null;
  return (
    <ol class="cover" aria-label="How far it reaches">
      {steps.map((step) => (
        <li key={`${step.kind} ${step.whole}`} class={step.n === step.of ? "whole" : ""}>
          <i aria-hidden="true" style={{ "--share": `${(100 * step.n) / Math.max(1, step.of)}%` }} />
          {coverWords(step)}
        </li>
      ))}
    </ol>
  );
}

/** What to type into other tools: node, GPU, NIC, process of the first culprit, and the subject when it is another. */
function Names({
  rank,
  several,
  finding,
  grid,
}: {
  rank: number;
  several: boolean;
  finding: Finding | null;
  grid: GridColumns | null;
}) {
  const names = namesOf(rank, grid);
  if (finding?.subject.node && !names.some(([what]) => what === "node")) names.unshift(["node", finding.subject.node]);
  const subject = finding?.subject;
  const isNew =
    subject &&
    !["rank", "process", "job", "rack"].includes(subject.kind) &&
    !names.some(([, name]) => subject.name.endsWith(name)) &&
    !/^ranks? [\d,–\- and]+$/.test(subject.name); // named by its rank: its own name stands above, where it is known
  if (isNew)
    names.unshift([
      subject.kind === "nic" || subject.kind === "gpu" ? subject.kind.toUpperCase() : subject.kind,
      subject.name,
    ]);
  return (
    <>
      {several && <p class="faint">of rank {rank}:</p>}
      <dl class={names.every(([, name]) => name.length <= SHORT_MAX) ? "names names-short" : "names"}>
        {names.map(([what, name]) => (
          <div key={what}>
            <dt>{what}</dt>
            <dd>
              <Copy text={name} label={what} />
            </dd>
          </div>
        ))}
      </dl>
    </>
  );
}

function Victims({ row, diagnosis }: { row: VerdictRow; diagnosis: Diagnosis | null }) {
  const victims = diagnosis?.victims ?? [];
  const comms = inOrder(Object.values(diagnosis?.communicators ?? {}));
  return (
    <div class="card">
      <h2>Only waiting</h2>
      <p class="big">{row.n_victims > 0 ? count(row.n_victims, "rank") : "Nobody known"}</p>
      {victims.length > 0 && <p class="ranks">{rankRanges(victims, 14)}</p>}
      {comms.length > 0 && (
        <p class="faint">
          through {comms.slice(0, 4).join(", ")}
          {comms.length > 4 ? ` and ${comms.length - 4} more` : ""}
        </p>
      )}
    </div>
  );
}

/** Text in `backticks` is a command: copied with one click. */
function AdviceLines({ text }: { text: string }) {
  return (
    <>
      {adviceLines(text).map((pieces, n) => (
        <p key={n}>
          {pieces.map((piece) =>
            piece.isCommand ? <Copy key={piece.text} text={piece.text} label="command" /> : piece.text,
          )}
        </p>
      ))}
    </>
  );
}

/** What is left to do where nobody stands out. */
function searchedAdvice({ symptom }: VerdictRow): string {
  const reads =
    symptom === "external"
      ? "the reported time once more, and the newest minute"
      : "that time once more, with all sent since";
  return `Diagnose again reads ${reads}. If the trouble comes back, report it on the job’s page while it happens.`;
}

function Advice({ row, finding, isSearched }: FoundProps) {
  return (
    <div class="card advice">
      <h2>What to do next</h2>
      {finding?.advice ? (
        <AdviceLines text={finding.advice} />
      ) : (
        <p class="faint">
          {isSearched
            ? searchedAdvice(row)
            : row.certainty === "suspected"
              ? "The next looks will name a cause or say that none can be named."
              : "No advice comes with this finding. Start with the evidence below."}
        </p>
      )}
    </div>
  );
}
