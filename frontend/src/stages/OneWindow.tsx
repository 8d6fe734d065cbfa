/* One window: what it says in a sentence, whom to profile and how, its labels, its steps, its ranks, and what dashboards hide. */

import { ask } from "../api";
import { Boxed } from "../parts/Boxed";
import { Loading } from "../parts/bits";
import { Failure } from "../parts/Failure";
import { Figure } from "../parts/Figure";
import { type Column, Table } from "../parts/Table";
import { useAnswer } from "../parts/useAnswer";
import { selectRank } from "../state/address";
import { notify } from "../state/notices";
import {
  type ByStage,
  headline,
  labelWords,
  percent,
  type StageWindow,
  type StageWindowRow,
  short,
  VERDICT,
} from "./shapes";

interface OneWindowProps {
  jobId: number;
  id: number;
  /** What says that a window is of a time that is over; "" of one that is not. */
  before: (row: StageWindowRow) => string;
}

export function OneWindow({ jobId, id, before }: OneWindowProps) {
  const asked = `jobs/${jobId}/stages/${id}`;
  const { value, failure, again } = useAnswer(asked, () => ask<StageWindow>(asked));
  if (failure && !value) return <Failure error={failure} again={again} />;
  if (!value) return <Loading what="the window" />;
  const { window } = value;
  return (
    <section class="one-window" aria-labelledby="stage-window">
      <h3 id="stage-window">
        Steps {window.first_step.toLocaleString("en")} to {window.last_step.toLocaleString("en")}
        {window.role && `, ${window.role}`}
        <span class={`stage-verdict ${window.verdict}`}>{VERDICT[window.verdict].word}</span>
      </h3>
      <p class="stage-headline">{headline(value, before(window))}</p>
      {value.verdict.next_look && (window.verdict !== "routed" || !value.profile) && (
        <p class="stage-next">Next: {value.verdict.next_look}</p>
      )}
      <Profile answer={value} />
      <Labels answer={value} />
      <div class="stage-figures">
        <Boxed
          class="stage-figure"
          title="Step by step"
          hint="how far the frontier advanced in each stage; hover for who led"
        >
          <Figure figure={value.steps} label="Advances of the frontier, step by step" />
        </Boxed>
        <Boxed class="stage-figure" title="Ranks by stage" hint="mean of the window against the median rank">
          <Figure figure={value.ranks} label="Ranks by stage" />
        </Boxed>
        <Boxed class="stage-figure" title="Median against frontier" hint="what a dashboard of medians would show">
          <Figure figure={value.median} label="Median and frontier share of each stage" />
        </Boxed>
      </div>
      <Compared answer={value} />
    </section>
  );
}

function Profile({ answer }: { answer: StageWindow }) {
  const { profile } = answer;
  if (!profile) return null;
  const copy = (command: string) => navigator.clipboard?.writeText(command).then(() => notify("Command copied"));
  return (
    <div class="stage-profile">
      <p>
        Profile{" "}
        <button type="button" class="link" onClick={() => selectRank(profile.rank)}>
          rank {profile.rank}
        </button>{" "}
        in {short(profile.stage)}
        {profile.node && (
          <>
            , on <b>{profile.node}</b>
          </>
        )}
        {profile.pid !== null && `, process ${profile.pid}`}:
      </p>
      {profile.commands.map((command) => (
        <div key={command} class="stage-command">
          {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a scrolling box must be reachable by keyboard */}
          <code tabIndex={0}>{command}</code>
          <button type="button" onClick={() => void copy(command)}>
            Copy
          </button>
        </div>
      ))}
    </div>
  );
}

function Labels({ answer }: { answer: StageWindow }) {
  const { report } = answer;
  return (
    <>
      <dl class="stage-labels">
        {answer.labels.map(({ label, meaning }) => (
          <div key={label}>
            <dt title={label}>{labelWords(label)}</dt>
            <dd>{meaning}</dd>
          </div>
        ))}
      </dl>
      {report.co_critical_stages.length > 1 && (
        <p>Cannot be ranked against each other: {report.co_critical_stages.map(short).join(", ")}.</p>
      )}
      {report.downgrades.length > 0 && (
        <div class="stage-withheld">
          <p>Why nothing stronger is said:</p>
          <ul>
            {report.downgrades.map((why) => (
              <li key={why}>{why}</li>
            ))}
          </ul>
        </div>
      )}
      <p class="faint">
        Wait model: {report.fits_wait_model ? "yes" : "no"}
        {report.why && `, ${report.why}`}. Gains against the {report.gain_baseline.replaceAll("_", " ")}.
      </p>
    </>
  );
}

const STAGES: Column<ByStage>[] = [
  { word: "Stage", cell: (row) => <span title={row.stage}>{short(row.stage)}</span> },
  { word: "Median", isNumber: true, cell: (row) => `${row.p50_ms.toFixed(1)} ms` },
  { word: "p95", isNumber: true, cell: (row) => `${row.p95_ms.toFixed(1)} ms` },
  { word: "Longest", isNumber: true, cell: (row) => `${row.max_ms.toFixed(1)} ms` },
  { word: "Median's share", isNumber: true, class: () => "faint", cell: (row) => percent(row.p50_share) },
  { word: "Frontier", isNumber: true, cell: (row) => <b>{percent(row.share)}</b> },
];

/** The frontier beside the summaries that dashboards show of the same durations. */
function Compared({ answer }: { answer: StageWindow }) {
  const summaries = Object.entries(answer.summaries);
  const gains: Column<ByStage> = {
    word: "Gain",
    isNumber: true,
    title: "By how much the step would be shorter, had the stage taken what it usually does",
    cell: (row) => percent(answer.report.gains[row.stage] ?? 0),
  };
  const others: Column<ByStage>[] = summaries.map(([name, shares]) => ({
    word: name,
    isNumber: true,
    isWideOnly: true,
    class: () => "faint",
    cell: (row) => percent(shares[row.stage] ?? 0),
  }));
  return (
    <Table
      label="Stages as different summaries show them"
      isCards
      columns={[...STAGES, gains, ...others]}
      rows={answer.by_stage}
      rowKey={(row) => row.stage}
    />
  );
}
