/*
 * An incident's copies in other systems, above its timeline: how each stands there, whose it is, and since when nobody knows;
 * where it was told nowhere, where that is set up. A ticket that is closed there changes nothing here: the page says so and offers the act.
 */

import type { IncidentRow } from "../live/rows";
import { Ago } from "../parts/bits";
import { useAnswer } from "../parts/useAnswer";
import { offered } from "../state/offered";
import { readTickets, standsThere, type TicketRow } from "./calls";
import { useBeat } from "./useBeat";
import "./tickets.css";

const LOOK_MS = 20_000;

export function TicketsOf({ row }: { row: IncidentRow }) {
  const beat = useBeat(LOOK_MS);
  const { value, failure } = useAnswer(
    `tickets ${row.number}`,
    () => readTickets(row.number),
    `${row.version} ${beat}`,
  );
  if (failure && !value) return <p class="faint">Tickets cannot be read: {failure.message}</p>;
  if (!value) return null;
  if (value.tickets.length === 0) return <Nowhere />;
  const closed = value.tickets.filter((one) => one.differs);
  return (
    <section class="tickets" aria-labelledby="tickets-of">
      <h3 id="tickets-of">Tickets</h3>
      <ul>
        {value.tickets.map((one) => (
          <Ticket key={one.destination} row={one} />
        ))}
      </ul>
      {closed.length > 0 && <Differs row={row} closed={closed} />}
      <p class="faint">
        <a href={`/destinations?incident=${row.number}`}>What was sent, and what became of it</a>
      </p>
    </section>
  );
}

function Nowhere() {
  return (
    <p class="faint">
      No other system was told of this incident. PagerDuty, Jira, Slack and others are set up under{" "}
      <a href="/destinations">Destinations</a>.
    </p>
  );
}

function Ticket({ row }: { row: TicketRow }) {
  const name = `${row.destination_name}${row.url ? ` ${row.external_id}` : ""}`;
  const isLink = /^https?:\/\//.test(row.url);
  const there = standsThere(row);
  return (
    <li>
      {isLink ? (
        <a href={row.url} rel="noreferrer" target="_blank">
          {name}
        </a>
      ) : (
        <b>{name}</b>
      )}
      {!row.told_at && <span class="unknown-since">not told yet{row.untold_why && `: ${row.untold_why}`}</span>}
      {there && <span class={row.differs || row.remote_state === "gone" ? "differs-there" : ""}>{there}</span>}
      {row.remote_assignee && <span>{row.remote_assignee}</span>}
      {row.remote_at && (
        <span class="faint">
          changed there <Ago at={row.remote_at} />
        </span>
      )}
      {row.unknown_since ? (
        <span class="unknown-since">
          unknown since <Ago at={row.unknown_since} />: {row.unknown_why}
        </span>
      ) : (
        row.seen_at && (
          <span class="faint">
            seen <Ago at={row.seen_at} />
          </span>
        )
      )}
    </li>
  );
}

function Differs({ row, closed }: { row: IncidentRow; closed: TicketRow[] }) {
  const resolve = offered.value.find((one) => one.word === "Resolve …");
  const where = closed.map((one) => one.destination_name).join(", ");
  const here = row.condition === "firing" ? "it still fires here" : `it is ${row.state} here`;
  return (
    <p class="warning">
      Closed in {where}, but {here}: a ticket that is closed elsewhere resolves nothing.{" "}
      {resolve && (
        <button type="button" onClick={resolve.run}>
          Resolve it here, too …
        </button>
      )}
    </p>
  );
}
