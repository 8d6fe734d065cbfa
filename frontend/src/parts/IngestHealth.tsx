/*
 * How ingest is doing: who works, how fast, where traces go; then what was refused, lost or left out, each with the
 * reason. What nobody can say is called unknown; only when all of it is known to be nought does it say so.
 */

import type { ComponentChildren } from "preact";
import type { IngestRow } from "../live/rows";
import { timeOfDay, zoneLabel } from "../state/clock";
import { count, lossWords, REFUSED, worded } from "../state/words";

export function IngestHealth({ row }: { row: IngestRow }) {
  const troubles = troublesOf(row);
  return (
    <section class="ingest" aria-labelledby="ingest">
      <h2 id="ingest">Ingest</h2>
      <dl class="ingest-facts">
        <Fact word="Processes" isBad={row.processes === 0}>
          {row.processes ?? <Unknown />}
        </Fact>
        <Fact word="Batches">{row.batches_per_s === null ? <Unknown /> : `${rate(row.batches_per_s)}/s`}</Fact>
        <Fact word="Nodes">
          <a href="/nodes">{nodesWords(row)}</a>
        </Fact>
        <Fact word="Store">{row.store}</Fact>
        <Fact word="Disk" isBad={row.disk === "short"}>
          {row.disk === "unknown" ? <Unknown /> : row.disk === "short" ? "short" : "enough room"}
        </Fact>
      </dl>
      {troubles.length === 0 ? (
        <p class="faint">{nothingWrongWords(row)}</p>
      ) : (
        <ul class="ingest-troubles">
          {troubles.map((trouble) => (
            <li key={trouble.what} class={trouble.isBad ? "ingest-bad" : ""}>
              <b>{trouble.what}</b> <span>{trouble.why}</span>
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}

function Fact({ word, isBad, children }: { word: string; isBad?: boolean; children: ComponentChildren }) {
  return (
    <div class={isBad ? "ingest-bad" : ""}>
      <dt>{word}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function Unknown() {
  return <span class="faint">unknown</span>;
}

/** Counts are those of the processes that live: what was refused before the youngest began, nobody knows any more. */
export function nothingWrongWords(row: IngestRow): string {
  if (row.counted_since === null) return "Whether anything is refused is not known.";
  return `Nothing was refused, lost or dropped since ${timeOfDay(Date.parse(row.counted_since))} ${zoneLabel()}.`;
}

export function nodesWords(row: IngestRow): string {
  const parts = [`${row.nodes_reporting.toLocaleString("en-US")} reporting`];
  if (row.nodes_catching_up > 0) parts.push(`${row.nodes_catching_up} catching up`);
  if (row.nodes_unheard > 0) {
    parts.push(`${row.nodes_unheard} ${whyUnheard(row)}`);
  }
  if (row.nodes_silent > 0) parts.push(`${row.nodes_silent} silent`);
  return parts.join(", ");
}

function whyUnheard(row: IngestRow): string {
  if (row.disk === "short") return "refused: the disk is short";
  return row.processes ? "not heard yet: ingest was away" : "not heard: ingest is away";
}

interface Trouble {
  what: string;
  why: string;
  isBad: boolean;
}

/** What a person should know of, worst first. Unknown tokens are strangers knocking: told, not alarming. */
export function troublesOf(row: IngestRow): Trouble[] {
  const found: Trouble[] = [];
  const tell = (what: string, why: string, isBad = true) => found.push({ what, why, isBad });
  if (row.disk === "short") tell("Traces are refused: the disk is short.", row.disk_says);
  if (row.processes === 0) tell("No ingest process was heard from.", "See its log, or run manage.py doctor.");
  for (const [kind, n] of Object.entries(row.losses)) {
    tell(lossWords(kind, n), "lost before reaching us");
  }
  if (row.batches_refused > 0) {
    tell(`${count(row.batches_refused, "batch", "batches")} refused`, "broken, or one job, node or attempt too many");
  }
  if (row.rows_dropped > 0) tell(`${count(row.rows_dropped, "row")} dropped`, "they could not be true");
  if (row.strays > 0) {
    tell(
      `${count(row.strays, "batch", "batches")} nobody looks at`,
      "of an earlier attempt whose processes still live: two runs with one job name?",
    );
  }
  for (const [status, n] of Object.entries(row.requests_refused)) {
    if (status !== "400") tell(`${count(n, "request")} refused`, worded(REFUSED, status), status === "500");
  }
  return found;
}

export function rate(value: number): string {
  return value >= 100 ? Math.round(value).toLocaleString("en-US") : value.toFixed(1);
}
