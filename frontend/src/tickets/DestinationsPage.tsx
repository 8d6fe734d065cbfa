/*
 * Where incidents are told, and what became of every message: destinations with a test button, deliveries with replay.
 */

import { useEffect, useState } from "preact/hooks";
import { Copy, Empty, In, Loading } from "../parts/bits";
import { Failure } from "../parts/Failure";
import { type Column, Table } from "../parts/Table";
import { useAnswer } from "../parts/useAnswer";
import { pageTitle } from "../state/badge";
import { notify } from "../state/notices";
import { count } from "../state/words";
import {
  changeDestination,
  type DestinationRow,
  type DestinationsAnswer,
  overtakenBy,
  readDestinations,
  removeDestination,
  standing,
  testDestination,
} from "./calls";
import { Deliveries } from "./Deliveries";
import { DestinationDialog } from "./DestinationDialog";
import { History } from "./History";
import { useBeat } from "./useBeat";
import "./tickets.css";

const LOOK_MS = 3000;

export function DestinationsPage() {
  const beat = useBeat(LOOK_MS);
  const { value, failure, again } = useAnswer("destinations", readDestinations, beat);
  const [history, setHistory] = useState<DestinationRow | null>(null);
  const [form, setForm] = useState<DestinationRow | "new" | null>(null);
  useEffect(() => {
    pageTitle.value = "Destinations";
  }, []);
  const mayMake = (value?.teams.length ?? 0) > 0;
  return (
    <div class="page">
      <div class="list-head">
        <h1>Destinations</h1>
        {mayMake && (
          <div class="head-acts">
            <button type="button" class="primary" onClick={() => setForm("new")}>
              New destination
            </button>
          </div>
        )}
      </div>
      <p class="faint">
        Incidents are told here ten seconds after they open, or at once when the evidence is strong; silenced ones are
        not. A new destination is told of what is open and not acknowledged.
      </p>
      {failure && !value && <Failure error={failure} again={again} />}
      {!value && !failure && <Loading what="destinations" />}
      {value?.destinations.length === 0 && (
        <Empty title={mayMake ? "Nobody is told yet." : "Nobody is told yet; administrators add destinations."} />
      )}
      {value && value.destinations.length > 0 && (
        <Destinations answer={value} again={again} edit={setForm} show={setHistory} />
      )}
      {value && value.destinations.length > 0 && <Deliveries beat={beat} destinations={value.destinations} />}
      {history && <History row={history} onClose={() => setHistory(null)} />}
      {form && value && (
        <DestinationDialog
          kinds={value.kinds}
          teams={value.teams}
          row={form === "new" ? undefined : form}
          onClose={() => setForm(null)}
          onDone={again}
        />
      )}
    </div>
  );
}

interface DestinationsProps {
  answer: DestinationsAnswer;
  again: () => void;
  edit: (row: DestinationRow) => void;
  /** Shows a destination's history. */
  show: (row: DestinationRow) => void;
}

function Destinations({ answer, again, edit, show }: DestinationsProps) {
  const columns: Column<DestinationRow>[] = [
    { word: "Name", cell: (row) => row.name },
    { word: "Kind", cell: (row) => row.title },
    { word: "State", cell: (row) => <Standing row={row} /> },
    { word: "Waiting", isNumber: true, cell: (row) => row.n_waiting.toLocaleString("en-US") },
    { word: "Sent", isNumber: true, cell: (row) => row.n_sent.toLocaleString("en-US") },
    { word: "Dead", isNumber: true, cell: (row) => row.n_dead.toLocaleString("en-US") },
    { word: "Back", isWideOnly: true, cell: (row) => <Back row={row} /> },
    { word: "", cell: (row) => row.may_change && <Acts row={row} again={again} edit={edit} show={show} /> },
  ];
  const mayChange = answer.destinations.some((row) => row.may_change);
  return (
    <Table
      label="Destinations"
      isCards
      columns={mayChange ? columns : columns.slice(0, -1)}
      rows={answer.destinations}
      rowKey={(row) => row.id}
    />
  );
}

function Standing({ row }: { row: DestinationRow }) {
  const { word, isBad } = standing(row);
  return (
    <>
      <span class={isBad ? "warning standing" : ""}>{word}</span>
      {row.enabled && row.not_before && row.n_failures > 0 && (
        <span class="faint">
          {" "}
          next try <In until={row.not_before} />
        </span>
      )}
      {row.not_sent_why && <div class="warning standing">nothing will be sent: {row.not_sent_why}</div>}
      {row.n_refused > 0 && <div class="warning">{count(row.n_refused, "message")} refused: too many waited</div>}
      {row.n_left_out > 0 && (
        <div class="faint">
          {count(row.n_left_out, "open incident")} not told of when it was made: told of with the next change of each
        </div>
      )}
    </>
  );
}

function Back({ row }: { row: DestinationRow }) {
  if (!row.hook_path) return <span class="faint">–</span>;
  const refused = Object.entries(row.hooks_refused).map(([why, n]) => `${n} ${why}`);
  const address = `${location.origin}${row.hook_path}`;
  return (
    <div class="called-back">
      <Copy text={address} label={`address that ${row.name} calls back`} />
      <div class="faint">
        Add a webhook to it there, and what people do there is known here. {row.n_hooks} taken
        {refused.length > 0 && `; refused: ${refused.join(", ")}`}
      </div>
    </div>
  );
}

interface ActsProps {
  row: DestinationRow;
  again: () => void;
  edit: (row: DestinationRow) => void;
  show: (row: DestinationRow) => void;
}

function Acts({ row, again, edit, show }: ActsProps) {
  const [busy, setBusy] = useState(false);
  const [sure, setSure] = useState(false);
  const run = async (act: () => Promise<unknown>, done: string) => {
    setBusy(true);
    await act().then(
      () => notify(done),
      (error: Error) => notify(overtakenBy(error)?.words ?? error.message, "bad"),
    );
    setBusy(false);
    setSure(false);
    again();
  };
  return (
    <div class="head-acts">
      <button
        type="button"
        disabled={busy || !row.enabled}
        onClick={() => run(() => testDestination(row.id), "A test is on its way: see Deliveries.")}
        aria-label={`Test ${row.name}`}
      >
        Test
      </button>
      <button type="button" disabled={busy} onClick={() => edit(row)} aria-label={`Change ${row.name}`}>
        Change
      </button>
      <button type="button" onClick={() => show(row)} aria-label={`History of ${row.name}`}>
        History
      </button>
      <button
        type="button"
        disabled={busy}
        onClick={() =>
          run(
            () => changeDestination(row.id, row.version, { enabled: !row.enabled }),
            row.enabled ? "Switched off; messages stop." : "Switched on.",
          )
        }
        aria-label={`Switch ${row.name} ${row.enabled ? "off" : "on"}`}
      >
        {row.enabled ? "Off" : "On"}
      </button>
      <button
        type="button"
        disabled={busy}
        onClick={() => (sure ? run(() => removeDestination(row.id, row.version), "Removed.") : setSure(true))}
        aria-label={`${sure ? "Really remove" : "Remove"} ${row.name}`}
      >
        {sure ? "Really?" : "Remove"}
      </button>
    </div>
  );
}
