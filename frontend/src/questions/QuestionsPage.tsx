/*
 * Ad-hoc questions: pick what is measured, of which ops, per what, over which time. The answer is a figure and a table, to be
 * taken away as CSV or Parquet; the question is in the address, so a link asks a colleague the same.
 */

import { useEffect } from "preact/hooks";
import { Empty, Loading } from "../parts/bits";
import { Failure } from "../parts/Failure";
import { Figure } from "../parts/Figure";
import { type Column, Table } from "../parts/Table";
import { useAnswer } from "../parts/useAnswer";
import { query, setQuery } from "../state/address";
import { pageTitle } from "../state/badge";
import { absolute } from "../state/clock";
import { notify } from "../state/notices";
import { team } from "../state/team";
import { count, readable } from "../state/words";
import { type QuestionAnswer, questionOf, readAnswer, takeAnswer } from "./calls";
import { Times } from "./Times";
import "./questions.css";

const MEASURES = [
  ["duration", "how long ops take"],
  ["bandwidth", "bandwidth"],
  ["bus_bandwidth", "bus bandwidth"],
  ["bytes", "bytes"],
  ["ops", "number of ops"],
] as const;
const OF = ["p99", "p90", "p50", "mean", "max"];
const PER = ["time", "kind", "communicator", "rank", "node"];
const SHOWN = 200;

export function QuestionsPage() {
  const jobs = team.snapshot.value?.jobs ?? [];
  const given = Number(query.value.get("job"));
  const job = given > 0 ? given : (jobs[0]?.id ?? 0);
  useEffect(() => {
    pageTitle.value = "Questions";
  }, []);
  return (
    <div class="page questions">
      <h1>Questions</h1>
      {job > 0 ? <Asked key={job} job={job} jobs={jobs} /> : <Empty title="There is no job to ask about yet." />}
    </div>
  );
}

function Asked({ job, jobs }: { job: number; jobs: readonly { id: number; name: string }[] }) {
  const question = questionOf(query.value);
  const { value, failure, again } = useAnswer(`question ${job} ${question}`, () => readAnswer(job, question));
  const last = useLast(value);
  const names = jobs.some(({ id }) => id === job) ? jobs : [{ id: job, name: `job ${job}` }, ...jobs];
  return (
    <>
      <form class="question" onSubmit={(submit) => submit.preventDefault()} aria-label="The question">
        <Choice name="job" word="Job" value={String(job)} of={names.map(({ id, name }) => [String(id), name])} isKept />
        <Choice name="measure" word="Show" value={at("measure", "duration")} of={MEASURES} />
        {at("measure", "duration") === "duration" && (
          <Choice name="of" word="as" value={at("of", "p99")} of={same(OF)} />
        )}
        <Choice
          name="kind"
          word="of"
          value={at("kind", "")}
          of={[["", "all kinds of op"], ...same(last?.offered.kinds ?? [])]}
        />
        <Choice name="comm" word="in" value={at("comm", "")} of={communicators(last)} />
        <Choice name="per" word="per" value={at("per", "time")} of={same(PER)} />
        <Times answer={last} isOfTraces={["rank", "node"].includes(at("per", "time"))} />
        <button type="button" onClick={again}>
          Ask again
        </button>
      </form>
      {failure && <Failure error={failure} again={again} />}
      {!value && !failure && <Loading what="the answer" />}
      {value && <Answered job={job} question={question} answer={value} />}
    </>
  );
}

const at = (name: string, usual: string) => query.value.get(name) ?? usual;
const same = (values: readonly string[]): (readonly [string, string])[] => values.map((one) => [one, one]);

function communicators(answer: QuestionAnswer | null): (readonly [string, string])[] {
  const { families = [], communicators: names = [] } = answer?.offered ?? {};
  const all: (readonly [string, string])[] = [["", "all communicators"]];
  return [...all, ...families.map((one) => [one, `all ${one}`] as const), ...same(names)];
}

/** Choices stay while the next answer is on its way. */
const held: { answer: QuestionAnswer | null } = { answer: null };
function useLast(value: QuestionAnswer | null): QuestionAnswer | null {
  if (value) held.answer = value;
  return held.answer;
}

interface ChoiceProps {
  name: string;
  word: string;
  value: string;
  of: readonly (readonly [string, string])[];
  /** Stays in the address also when it is the first. */
  isKept?: boolean;
}

function Choice({ name, word, value, of, isKept = false }: ChoiceProps) {
  const known = of.some(([code]) => code === value) ? of : [...of, [value, value] as const];
  const choose = (chosen: string) => {
    if (name === "job") setQuery({ job: chosen, comm: null, kind: null, attempt: null, from: null, to: null });
    // Traces reach back for hours, roll-ups for weeks: a time chosen for one is none for the other.
    else if (name === "per") setQuery({ per: chosen, from: null, to: null });
    else setQuery({ [name]: chosen === of[0][0] && !isKept ? null : chosen });
  };
  return (
    <div class="field">
      <label for={`ask-${name}`}>{word}</label>
      <select id={`ask-${name}`} value={value} onChange={(change) => choose(change.currentTarget.value)}>
        {known.map(([code, shown]) => (
          <option key={code} value={code} selected={code === value}>
            {shown}
          </option>
        ))}
      </select>
    </div>
  );
}

function Answered({ job, question, answer }: { job: number; question: string; answer: QuestionAnswer }) {
  const take = (kind: "csv" | "parquet") => () =>
    void takeAnswer(job, pinned(question, answer), kind).catch((error: Error) => notify(error.message, "bad"));
  return (
    <>
      <section class="panel" aria-labelledby="answer">
        <div class="panel-head">
          <h2 id="answer">Answer</h2>
          <span class="faint">
            attempt {answer.attempt}, {absolute(new Date(answer.from_ms).toISOString())} to{" "}
            {absolute(new Date(answer.to_ms).toISOString())}
          </span>
          {answer.left_out > 0 && (
            <span class="warning">{count(answer.left_out, "row")} beyond the limit left out, of files too</span>
          )}
          <div class="head-acts">
            <button type="button" onClick={take("csv")}>
              CSV
            </button>
            <button type="button" onClick={take("parquet")}>
              Parquet
            </button>
          </div>
        </div>
        {answer.rows.length > 0 ? (
          <Figure figure={answer.figure} label="The answer as a figure" />
        ) : (
          <p class="faint">{answer.figure.text}</p>
        )}
      </section>
      {answer.rows.length > 0 && <Rows answer={answer} />}
    </>
  );
}

/** The same time in the file as on the page, also when the page asked for what is newest. */
function pinned(question: string, answer: QuestionAnswer): string {
  const asked = new URLSearchParams(question);
  asked.set("from", String(answer.from_ms));
  asked.set("to", String(answer.to_ms));
  return `?${asked}`;
}

type Row = QuestionAnswer["rows"][number];

function Rows({ answer }: { answer: QuestionAnswer }) {
  const columns: Column<Row>[] = answer.columns.map(({ name, kind, unit }, place) => ({
    word: readable(name) + (unit && unit !== name ? `, ${unit}` : ""),
    isNumber: kind === "number" && place > 0,
    cell: (row) => cellWords(row[place], kind),
  }));
  const rows = answer.rows.slice(0, SHOWN);
  return (
    <Table
      label="The answer as a table"
      columns={columns}
      rows={rows}
      rowKey={(row) => row.slice(0, answer.value_at).join(" ")}
    >
      {answer.rows.length > SHOWN && (
        <p class="faint">
          The first {SHOWN} of {answer.rows.length} rows; the files have all of them.
        </p>
      )}
    </Table>
  );
}

function cellWords(value: string | number | null, kind: string): string {
  if (value === null) return "unknown";
  if (kind === "time") return absolute(String(value));
  return typeof value === "number" ? value.toLocaleString("en-US", { maximumSignificantDigits: 6 }) : value;
}
