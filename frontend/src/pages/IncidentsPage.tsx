/*
 * The list of incidents. What is shown is in the URL; rows change under the reader's eyes as live messages arrive, and
 * a new incident refetches the list, because only the server knows whether it matches. Rows can be marked and handled
 * together, by mouse or by keys.
 */

import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { type IncidentsAnswer, readIncidents } from "../api";
import { type BulkAsking, BulkBar } from "../list/BulkBar";
import { Facets } from "../list/Facets";
import { Rows } from "../list/Rows";
import { Views } from "../list/Views";
import type { IncidentRow } from "../live/rows";
import { Empty, Loading } from "../parts/bits";
import { Failure } from "../parts/Failure";
import { later } from "../parts/later";
import { query, setQuery } from "../state/address";
import { pageTitle } from "../state/badge";
import { doToMany } from "../state/bulk";
import { useKeys } from "../state/keys";
import { filtersOf, incidentHref, listQuery } from "../state/list";
import { type Marks, useMarks } from "../state/marks";
import { type Selection, useSelection } from "../state/selection";
import { lastTeamMessage, liveIncidents, mayAct } from "../state/team";

const SilenceDialog = later(async () => (await import("../silences/SilenceDialog")).SilenceDialog, "the dialog");

const answer = signal<IncidentsAnswer | null>(null);
const failure = signal<Error | null>(null);
const REFETCH_MS = 400;

async function load(): Promise<void> {
  const asked = listQuery();
  try {
    const got = await readIncidents(asked);
    if (asked === listQuery()) answer.value = got;
    failure.value = null;
  } catch (error) {
    failure.value = error as Error;
  }
}

/** The list's rows, each replaced by the team stream's when that one is newer. */
function liveRows(rows: IncidentRow[]): IncidentRow[] {
  const live = new Map(liveIncidents.value.map((row) => [row.number, row]));
  return rows.map((row) => {
    const other = live.get(row.number);
    return other && other.version >= row.version ? other : row;
  });
}

export function IncidentsPage() {
  const asked = listQuery();
  useEffect(() => {
    pageTitle.value = "Incidents";
  }, []);
  useEffect(() => {
    void load();
  }, [asked]);
  const message = lastTeamMessage.value;
  useEffect(() => {
    if (!message?.type.startsWith("incident.")) return;
    const timer = setTimeout(load, REFETCH_MS);
    return () => clearTimeout(timer);
  }, [message]);

  const rows = liveRows(answer.value?.incidents ?? []);
  const filters = filtersOf(query.value);
  const marks = useMarks(rows);
  const selection = useSelection(rows, {
    onActed: () => void load(),
    href: (row) => incidentHref(row.number, filters),
    // Keys act on what is marked, if anything is.
    acknowledge: marks.rows.length > 0 ? () => void acknowledgeAll(marks) : undefined,
  });
  return (
    <div class="page">
      <div class="list-head">
        <h1>Incidents</h1>
        <Search />
      </div>
      <Views />
      <Facets counts={answer.value?.facets} />
      {failure.value && <Failure error={failure.value} again={load} />}
      {!answer.value && !failure.value && <Loading what="incidents" />}
      {answer.value && rows.length === 0 && <NoMatch />}
      {rows.length > 0 && <Rows rows={rows} selection={selection} marks={marks} filters={filters} />}
      {answer.value && <Pager newer={answer.value.newer} older={answer.value.older} />}
      {mayAct.value && <Handling rows={rows} selection={selection} marks={marks} />}
    </div>
  );
}

/** Keys and bar for acts on the marked rows; without marks the keys act on the row that is chosen. */
function Handling({ rows, selection, marks }: { rows: IncidentRow[]; selection: Selection; marks: Marks }) {
  const [asking, ask] = useState<BulkAsking>(null);
  const [silencing, setSilencing] = useState<IncidentRow | null>(null);
  const chosen = rows.find((row) => row.number === selection.chosen);
  const askOf = (what: BulkAsking) => () => {
    if (marks.rows.length === 0 && chosen) marks.toggle(chosen.number);
    if (marks.rows.length > 0 || chosen) ask(what);
  };
  useKeys({
    x: () => chosen && marks.toggle(chosen.number),
    X: marks.all,
    Escape: marks.clear,
    r: askOf("resolve"),
    c: askOf("comment"),
    s: () => chosen && setSilencing(chosen),
  });
  return (
    <>
      <BulkBar marks={marks} asking={asking} ask={ask} onDone={() => void load()} />
      {silencing && (
        <div data-dialog-coming>
          <SilenceDialog row={silencing} onClose={() => setSilencing(null)} onMade={() => void load()} />
        </div>
      )}
    </>
  );
}

async function acknowledgeAll(marks: Marks): Promise<void> {
  if (await doToMany("acknowledge", marks.rows)) marks.clear();
  void load();
}

function Search() {
  const field = useRef<HTMLInputElement>(null);
  const wanted = query.value.get("find");
  useEffect(() => {
    if (!wanted) return;
    field.current?.focus();
    setQuery({ find: null });
  }, [wanted]);
  const typed = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  const search = (text: string) => {
    clearTimeout(typed.current);
    typed.current = setTimeout(() => setQuery({ q: text, cursor: null }), 250);
  };
  return (
    <search>
      <label class="visually-hidden" for="search">
        Search incidents
      </label>
      <input
        id="search"
        ref={field}
        type="search"
        placeholder="Search: rank 12, node, words   /"
        value={query.value.get("q") ?? ""}
        onInput={(input) => search(input.currentTarget.value)}
        onKeyDown={(press) => press.key === "Escape" && field.current?.blur()}
      />
    </search>
  );
}

function NoMatch() {
  return filtersOf(query.value) ? (
    <Empty title="No incident matches.">
      <p>
        <a href="/incidents">Show all incidents</a>
      </p>
    </Empty>
  ) : (
    <Empty title="There has been no incident yet.">
      <p>One opens by itself when a watched job hangs, slows down or falls silent.</p>
    </Empty>
  );
}

function Pager({ newer, older }: { newer: string | null; older: string | null }) {
  if (newer === null && older === null) return null;
  return (
    <nav class="pager" aria-label="Pages of the list">
      <button type="button" disabled={newer === null} onClick={() => setQuery({ cursor: newer })}>
        ← Newer
      </button>
      <button type="button" disabled={older === null} onClick={() => setQuery({ cursor: older })}>
        Older →
      </button>
    </nav>
  );
}
