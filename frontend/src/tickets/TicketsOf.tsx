/* An incident's copies in other systems, above its timeline; nothing where it was told nowhere. */

import { useAnswer } from "../parts/useAnswer";
import { readTickets, type TicketRow } from "./calls";

/** beat: rises when something happened to the incident. */
export function TicketsOf({ number, beat }: { number: number; beat: number }) {
  const { value, failure } = useAnswer(`tickets ${number}`, () => readTickets(number), beat);
  if (failure && !value) return <p class="faint">Tickets cannot be read: {failure.message}</p>;
  if (!value || value.tickets.length === 0) return null;
  return (
    <p>
      <b>Tickets:</b>{" "}
      {value.tickets.map((one, n) => (
        <span key={one.destination}>
          {n > 0 && ", "}
          <Ticket row={one} />
        </span>
      ))}{" "}
      <a href={`/destinations?incident=${number}`}>deliveries</a>
    </p>
  );
}

function Ticket({ row }: { row: TicketRow }) {
  const name = `${row.destination_name}${row.url ? ` ${row.external_id}` : ""}`;
  const isLink = /^https?:\/\//.test(row.url);
  return (
    <>
      {isLink ? (
        <a href={row.url} rel="noreferrer" target="_blank">
          {name}
        </a>
      ) : (
        name
      )}
      {!row.told_at && <span class="faint"> (not told yet)</span>}
      {row.differs && <span class="warning"> (closed there, not here)</span>}
    </>
  );
}
