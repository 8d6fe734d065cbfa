/*
 * How good the console is, by what people found out afterwards: precision, right verdicts, time to verdict, false alarms
 * of each rule. A share of few says so: how many were reviewed stands beside it.
 */

import { useEffect } from "preact/hooks";
import { type Card, readCard, type Score } from "../handling";
import { Empty, Loading } from "../parts/bits";
import { Failure } from "../parts/Failure";
import { type Column, Table } from "../parts/Table";
import { useAnswer } from "../parts/useAnswer";
import { query, setQuery } from "../state/address";
import { pageTitle } from "../state/badge";
import { spanWords } from "../state/clock";
import { count, SYMPTOM, worded } from "../state/words";

const SPANS: readonly (readonly [number, string])[] = [
  [7, "7 days"],
  [30, "30 days"],
  [90, "90 days"],
  [365, "1 year"],
];
const DAYS = 30;
/** Fewer reviews than this are named beside a share as too few to trust. */
const FEW = 10;

export function ScorecardPage() {
  const days = SPANS.find(([one]) => String(one) === query.value.get("days"))?.[0] ?? DAYS;
  const { value: card, failure, again } = useAnswer(`scorecard ${days}`, () => readCard(days));
  useEffect(() => {
    pageTitle.value = "Scorecard";
  }, []);
  return (
    <div class="page">
      <div class="list-head">
        <h1>Scorecard</h1>
        <fieldset class="segmented">
          <legend class="visually-hidden">Of how long</legend>
          {SPANS.map(([one, word]) => (
            <button
              key={one}
              type="button"
              aria-pressed={one === days}
              onClick={() => setQuery({ days: one === DAYS ? null : String(one) })}
            >
              {word}
            </button>
          ))}
        </fieldset>
      </div>
      {failure && !card && <Failure error={failure} again={again} />}
      {!card && !failure && <Loading what="the scorecard" />}
      {card && card.total.incidents === 0 && <Empty title="There was no incident in this time." />}
      {card && card.total.incidents > 0 && <Scores card={card} />}
    </div>
  );
}

function Scores({ card }: { card: Card }) {
  const { total } = card;
  const open = total.incidents - total.reviewed;
  return (
    <>
      <dl class="score-facts">
        <Fact word="Precision" value={share(total.precision)} of={`of ${count(total.reviewed, "reviewed incident")}`} />
        <Fact word="Right verdicts" value={share(total.right_share)} of={`of ${judged(total)} judged`} />
        <Fact
          word="Time to verdict"
          value={seconds(total.verdict_s_median)}
          of={
            total.verdict_s_p90 === null
              ? "no verdict yet"
              : `from the trigger, median; 90 % within ${seconds(total.verdict_s_p90)}`
          }
        />
        <Fact word="False alarms" value={String(total.false_alarms)} of={`and ${total.noise} nobody had to act on`} />
        <Fact word="Time to acknowledge" value={seconds(total.acknowledged_s_median)} of="median" />
      </dl>
      <p class={total.reviewed < FEW ? "warning" : "faint"}>
        {total.reviewed < FEW ? "Too few reviews to trust a share. " : ""}
        {open > 0 ? `${count(open, "incident")} of ${total.incidents} ${open === 1 ? "is" : "are"} not reviewed: ` : ""}
        {open > 0 ? "say on a resolved incident’s page what it was." : "Every incident of this time is reviewed."}
        {card.left_out > 0 && ` ${count(card.left_out, "older incident")} left out.`}
      </p>
      <ByRow title="By rule" rows={card.rules} name={(of) => of} />
      <ByRow title="By symptom" rows={card.symptoms} name={(of) => worded(SYMPTOM, of)} />
    </>
  );
}

function Fact({ word, value, of }: { word: string; value: string; of: string }) {
  return (
    <div>
      <dt>{word}</dt>
      <dd>
        <b>{value}</b> <span class="faint">{of}</span>
      </dd>
    </div>
  );
}

function ByRow({ title, rows, name }: { title: string; rows: Score[]; name: (of: string) => string }) {
  const columns: Column<Score>[] = [
    { word: title.replace("By ", "").replace(/^./, (letter) => letter.toUpperCase()), cell: (row) => name(row.of) },
    { word: "Incidents", isNumber: true, cell: (row) => row.incidents },
    { word: "Reviewed", isNumber: true, cell: (row) => row.reviewed },
    { word: "Precision", isNumber: true, cell: (row) => share(row.precision) },
    { word: "False alarms", isNumber: true, cell: (row) => row.false_alarms },
    {
      word: "Right",
      isNumber: true,
      cell: (row) => (judged(row) > 0 ? `${row.right} of ${judged(row)}` : "none judged"),
    },
    {
      word: "Time to verdict",
      isNumber: true,
      cell: (row) => seconds(row.verdict_s_median),
      title: "From the trigger to the verdict, as on an incident’s clock; median",
    },
  ];
  const id = `scores-${title.replace(" ", "-").toLowerCase()}`;
  return (
    <section class="group" aria-labelledby={id}>
      <h2 id={id}>{title}</h2>
      <Table label={title} isCards columns={columns} rows={rows} rowKey={(row) => row.of} />
    </section>
  );
}

function judged(score: Score): number {
  return score.right + score.partly + score.wrong;
}

export function share(part: number | null): string {
  return part === null ? "unknown" : `${(100 * part).toLocaleString("en-US", { maximumFractionDigits: 1 })} %`;
}

function seconds(value: number | null): string {
  return value === null ? "unknown" : spanWords(value * 1000);
}
