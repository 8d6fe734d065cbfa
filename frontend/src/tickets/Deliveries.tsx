/* Every message that was promised, newest first: its state, why, and sending it once more. */

import { useState } from "preact/hooks";
import { Ago, Empty, Loading } from "../parts/bits";
import { Failure } from "../parts/Failure";
import { type Column, Table } from "../parts/Table";
import { useAnswer } from "../parts/useAnswer";
import { query, setQuery } from "../state/address";
import { notify } from "../state/notices";
import { count } from "../state/words";
import { type DeliveryRow, type DestinationRow, readDeliveries, replayDelivery } from "./calls";

const STATES = ["waiting", "sent", "dead", "skipped"];

export function Deliveries({ beat, destinations }: { beat: number; destinations: DestinationRow[] }) {
  const asked = new URLSearchParams();
  for (const name of ["state", "destination", "incident", "before"]) {
    const given = query.value.get(name);
    if (given) asked.set(name, given);
  }
  const text = asked.size ? `?${asked}` : "";
  const { value, failure, again } = useAnswer(`deliveries${text}`, () => readDeliveries(text), beat);
  const rows = value?.deliveries ?? [];
  return (
    <section class="group" aria-labelledby="deliveries">
      <h2 id="deliveries">Deliveries</h2>
      <div class="head-acts">
        <Choice label="State" name="state" values={STATES.map((one) => [one, one])} />
        <Choice
          label="Destination"
          name="destination"
          values={destinations.map((one) => [String(one.id), one.name] as const)}
        />
      </div>
      {failure && !value && <Failure error={failure} again={again} />}
      {!value && !failure && <Loading what="deliveries" />}
      {value && rows.length === 0 && <Empty title="There are none." />}
      {rows.length > 0 && <Rows rows={rows} again={again} />}
      <div class="head-acts">
        {query.value.get("before") && (
          <button type="button" onClick={() => setQuery({ before: null })}>
            Newest
          </button>
        )}
        {value?.older && (
          <button type="button" onClick={() => setQuery({ before: String(value.older) })}>
            Older
          </button>
        )}
      </div>
    </section>
  );
}

interface ChoiceProps {
  label: string;
  name: string;
  values: readonly (readonly string[])[];
}

function Choice({ label, name, values }: ChoiceProps) {
  const chosen = query.value.get(name) ?? "";
  return (
    <label>
      {label}{" "}
      <select
        value={chosen}
        onChange={(change) => setQuery({ [name]: change.currentTarget.value || null, before: null })}
      >
        <option value="">all</option>
        {values.map(([value, word]) => (
          <option key={value} value={value} selected={value === chosen}>
            {word}
          </option>
        ))}
      </select>
    </label>
  );
}

function Rows({ rows, again }: { rows: DeliveryRow[]; again: () => void }) {
  const columns: Column<DeliveryRow>[] = [
    { word: "What", cell: (row) => <What row={row} /> },
    { word: "To", cell: (row) => row.destination_name },
    { word: "State", cell: (row) => <span class={row.state === "dead" ? "warning" : ""}>{row.state}</span> },
    { word: "When", cell: (row) => <Ago at={row.done_at ?? row.made_at} /> },
    { word: "Tries", isNumber: true, cell: (row) => row.n_attempts },
    { word: "Said", cell: (row) => row.said || <span class="faint">–</span> },
    { word: "", cell: (row) => row.may_replay && <Replay row={row} again={again} /> },
  ];
  return <Table label="Newest deliveries" isCards columns={columns} rows={rows} rowKey={(row) => row.id} />;
}

function What({ row }: { row: DeliveryRow }) {
  return (
    <>
      {row.verb}{" "}
      {row.incident !== null && (
        <a href={`/incidents/${row.incident}`} title={row.headline}>
          #{row.incident}
        </a>
      )}
      {row.n_merged > 0 && <span class="faint"> and {count(row.n_merged, "later change")}</span>}
      {row.replay_of !== null && <span class="tag">replay</span>}
    </>
  );
}

function Replay({ row, again }: { row: DeliveryRow; again: () => void }) {
  const [busy, setBusy] = useState(false);
  const replay = async () => {
    setBusy(true);
    await replayDelivery(row.id).then(
      () => notify("It is sent once more."),
      (error: Error) => notify(error.message, "bad"),
    );
    setBusy(false);
    again();
  };
  return (
    <button type="button" disabled={busy} onClick={replay} aria-label={`Replay delivery ${row.id}`}>
      Replay
    </button>
  );
}
