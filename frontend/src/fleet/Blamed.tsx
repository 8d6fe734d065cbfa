/* Who was blamed, the most often first: a row per node, GPU or NIC, with a calendar of the last thirty days. */

import { Ago } from "../parts/bits";
import { type Column, Table } from "../parts/Table";
import { count } from "../state/words";
import { nodeHref, type Recurrence, type Recurrences } from "./calls";
import "./fleet.css";

const KIND: Record<Recurrence["kind"], string> = { node: "Node", gpu: "GPU", nic: "NIC" };
const NUMBERS_SHOWN = 5;
const DAYS = 30;

const COLUMNS: Column<Recurrence>[] = [
  { word: "Where", cell: (row) => <Where row={row} /> },
  { word: "Blamed", isNumber: true, cell: (row) => row.n_incidents },
  { word: "Last", cell: (row) => <Ago at={row.newest_at} /> },
  { word: "Thirty days", isWideOnly: true, cell: (row) => <Calendar days={row.days} /> },
  { word: "Incidents", cell: (row) => <Numbers row={row} /> },
];

export function Blamed({ blamed, title = "Blamed in thirty days" }: { blamed: Recurrences; title?: string }) {
  return (
    <section class="group" aria-labelledby="blamed">
      <h2 id="blamed">{title}</h2>
      {blamed.rows.length === 0 ? (
        <p class="faint">Nobody was blamed here since then.</p>
      ) : (
        <Table
          label="Who was blamed"
          isCards
          columns={COLUMNS}
          rows={blamed.rows}
          rowKey={(row) => `${row.kind} ${row.name}`}
        />
      )}
      <p class="faint">
        Of {count(blamed.n_incidents, "incident")} of all jobs that named somebody, false alarms left out.
        {blamed.left_out > 0 && ` ${blamed.left_out} more are not counted.`}
      </p>
    </section>
  );
}

function Where({ row }: { row: Recurrence }) {
  return (
    <>
      {!row.name.startsWith(KIND[row.kind]) && <span class="faint">{KIND[row.kind]} </span>}
      {row.kind === "node" ? <a href={nodeHref(row.node)}>{row.name}</a> : <code>{row.name}</code>}
      {row.kind === "gpu" && !row.name.endsWith(row.node) && (
        <>
          {" "}
          in <a href={nodeHref(row.node)}>{row.node}</a>
        </>
      )}
    </>
  );
}

function Numbers({ row }: { row: Recurrence }) {
  const more = row.n_incidents - NUMBERS_SHOWN;
  return (
    <span class="number-links">
      {row.incidents.slice(0, NUMBERS_SHOWN).map((number) => (
        <a key={number} href={`/incidents/${number}`}>
          #{number}
        </a>
      ))}
      {more > 0 && <span class="faint">and {more} more</span>}
    </span>
  );
}

/** A cell per day, oldest first; days without one are drawn, so that clusters show. */
export function Calendar({ days, now = Date.now() }: { days: Record<string, number>; now?: number }) {
  const dates = Array.from({ length: DAYS }, (_, n) =>
    new Date(now - (DAYS - 1 - n) * 86_400_000).toISOString().slice(0, 10),
  );
  const said = dates.filter((date) => days[date]).map((date) => `${date}: ${days[date]}`);
  return (
    <span class="calendar" role="img" aria-label={said.join(", ") || "no day"}>
      {dates.map((date) => (
        <i
          key={date}
          class={days[date] ? (days[date] > 1 ? "many" : "one") : ""}
          title={`${date}: ${days[date] ?? 0}`}
        />
      ))}
    </span>
  );
}
