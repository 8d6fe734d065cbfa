/*
 * Silences and maintenance: what is in force, by whom, why and for how long, how many incidents each silences now; what
 * is ahead; and what was over in the last week.
 */

import { useEffect, useState } from "preact/hooks";
import { endSilence, readSilences, type SilenceRow } from "../handling";
import { Ago, Empty, For, Loading } from "../parts/bits";
import { Dialog } from "../parts/Dialog";
import { Failure } from "../parts/Failure";
import { type Column, Table } from "../parts/Table";
import { useAnswer } from "../parts/useAnswer";
import { Refused, useSaying } from "../parts/useSaying";
import { SilenceDialog } from "../silences/SilenceDialog";
import { query, setQuery } from "../state/address";
import { pageTitle } from "../state/badge";
import { useKeys } from "../state/keys";
import { lastTeamMessage, mayAct } from "../state/team";
import { count } from "../state/words";

export function SilencesPage() {
  const beat = lastTeamMessage.value?.type.startsWith("incident.") ? lastTeamMessage.value.offset : 0;
  const { value, failure, again } = useAnswer("silences", readSilences, beat);
  const making = query.value.get("new");
  useEffect(() => {
    pageTitle.value = "Silences";
  }, []);
  const make = (kind: SilenceRow["kind"] | null) => setQuery({ new: kind, node: null, minutes: null });
  useKeys(mayAct.value ? { n: () => make("silence") } : {});
  const [ending, setEnding] = useState<SilenceRow | null>(null);
  const rows = value?.silences ?? [];
  return (
    <div class="page">
      <div class="list-head">
        <h1>Silences</h1>
        {mayAct.value && (
          <div class="head-acts">
            <button type="button" class="primary" onClick={() => make("silence")}>
              New silence <kbd>n</kbd>
            </button>
            <button type="button" onClick={() => make("maintenance")}>
              New maintenance
            </button>
          </div>
        )}
      </div>
      <p class="faint">
        A silenced incident pages nobody. It is still recorded, listed under <i>Silenced</i> and drawn as it is.
      </p>
      {failure && !value && <Failure error={failure} again={again} />}
      {!value && !failure && <Loading what="silences" />}
      {value && <Group title="In force" rows={rows.filter((one) => one.state === "in force")} end={setEnding} />}
      {value && <Group title="Ahead" rows={rows.filter((one) => one.state === "ahead")} end={setEnding} />}
      {value && <Group title="Over" rows={rows.filter((one) => one.state === "over")} end={setEnding} />}
      {(making === "silence" || making === "maintenance") && (
        <SilenceDialog
          kind={making}
          node={query.value.get("node") ?? undefined}
          minutes={Number(query.value.get("minutes")) || undefined}
          onClose={() => make(null)}
          onMade={again}
        />
      )}
      {ending && (
        <EndDialog row={ending} onClose={() => setEnding(null)} onEnd={() => endSilence(ending.id).finally(again)} />
      )}
    </div>
  );
}

interface GroupProps {
  title: "In force" | "Ahead" | "Over";
  rows: SilenceRow[];
  end: (row: SilenceRow) => void;
}

function Group({ title, rows, end }: GroupProps) {
  if (rows.length === 0) {
    return title === "In force" ? <Empty title="Nothing is silenced." /> : null;
  }
  const columns: Column<SilenceRow>[] = [
    { word: "Silences", cell: (row) => <What row={row} /> },
    { word: "Why", cell: (row) => row.reason },
    { word: "By", cell: (row) => <By row={row} /> },
    { word: title === "Over" ? "Ended" : title === "Ahead" ? "Begins" : "Still", cell: (row) => <When row={row} /> },
    { word: "Now", isNumber: true, cell: (row) => <Now row={row} /> },
    {
      word: "",
      cell: (row) =>
        row.may_end && (
          <button type="button" onClick={() => end(row)} aria-label={`End silence ${row.id}`}>
            End …
          </button>
        ),
    },
  ];
  const id = `silences-${title.toLowerCase().replace(" ", "-")}`;
  return (
    <section class="group" aria-labelledby={id}>
      <h2 id={id}>
        {title} <span class="faint">{rows.length}</span>
      </h2>
      <Table
        label={title}
        isCards
        columns={title === "Over" ? columns.slice(0, 4) : columns}
        rows={rows}
        rowKey={(row) => row.id}
      />
    </section>
  );
}

interface EndDialogProps {
  row: SilenceRow;
  onClose: () => void;
  /** Rejects with why it was refused. */
  onEnd: () => Promise<unknown>;
}

/** It pages people again: not by one click too many. */
function EndDialog({ row, onClose, onEnd }: EndDialogProps) {
  const { busy, refused, say } = useSaying(onClose);
  return (
    <Dialog title={row.kind === "maintenance" ? "End this maintenance?" : "End this silence?"} onClose={onClose}>
      <p>
        {row.words}. {row.made_by} made it: {row.reason}
      </p>
      <p>
        {row.n_incidents > 0
          ? `${count(row.n_incidents, "incident")} it silences now can page people again.`
          : "It silences no incident now; what it matches from now on pages people."}
      </p>
      <Refused words={refused} />
      <div class="dialog-actions">
        <button type="button" onClick={onClose}>
          Keep it
        </button>
        <button type="button" class="primary" disabled={busy} onClick={() => void say(onEnd)}>
          End it
        </button>
      </div>
    </Dialog>
  );
}

function What({ row }: { row: SilenceRow }) {
  return (
    <>
      {row.kind === "maintenance" && <span class="tag">maintenance</span>} {row.words}
    </>
  );
}

function By({ row }: { row: SilenceRow }) {
  return (
    <>
      {row.made_by}, <Ago at={row.made_at} />
    </>
  );
}

function When({ row }: { row: SilenceRow }) {
  if (row.state === "in force") return <For until={row.ends_at} />;
  if (row.state === "ahead") return <Ahead at={row.starts_at} />;
  return (
    <>
      <Ago at={row.ends_at} />
      {row.ended_by && `, by ${row.ended_by}`}
    </>
  );
}

function Ahead({ at }: { at: string }) {
  return (
    <span>
      not yet: <For until={at} />
    </span>
  );
}

function Now({ row }: { row: SilenceRow }) {
  return row.n_incidents > 0 ? (
    <a href="/incidents?state=silenced">{count(row.n_incidents, "incident")}</a>
  ) : (
    <span class="faint">none</span>
  );
}
