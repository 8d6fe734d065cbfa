/*
 * The list of incidents. What is shown is in the URL; rows change under the reader's eyes as live messages arrive, and
 * a new incident refetches the list, because only the server knows whether it matches.
 */

import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { type IncidentsAnswer, readIncidents } from "../api";
import type { IncidentRow } from "../live/rows";
import { Ago, ConditionChip, Empty, GradeMark, Loading, StateChip } from "../parts/bits";
import { Failure } from "../parts/Failure";
import { query, setQuery } from "../state/address";
import { pageTitle } from "../state/badge";
import { type Selection, useSelection } from "../state/selection";
import { lastTeamMessage, liveIncidents, liveJob } from "../state/team";
import { COMPONENT, count, rankRanges, SYMPTOM, worded } from "../state/words";

const answer = signal<IncidentsAnswer | null>(null);
const failure = signal<Error | null>(null);
const KEYS = ["state", "symptom", "job", "q", "page"];
const REFETCH_MS = 400;

function serverQuery(): string {
  const asked = new URLSearchParams();
  for (const key of KEYS) {
    const value = query.value.get(key);
    if (value) asked.set(key, value);
  }
  return asked.size > 0 ? `?${asked}` : "";
}

async function load(): Promise<void> {
  const asked = serverQuery();
  try {
    const got = await readIncidents(asked);
    if (asked === serverQuery()) answer.value = got;
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
  const asked = serverQuery();
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
  const selection = useSelection(rows, () => void load());
  return (
    <div class="page">
      <div class="list-head">
        <h1>Incidents</h1>
        <Search />
      </div>
      <Facets />
      {failure.value && <Failure error={failure.value} again={load} />}
      {!answer.value && !failure.value && <Loading what="incidents" />}
      {answer.value && rows.length === 0 && <NoMatch />}
      {rows.length > 0 && <List rows={rows} selection={selection} />}
      {answer.value && answer.value.pages > 1 && <Pager page={answer.value.page} pages={answer.value.pages} />}
    </div>
  );
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
    typed.current = setTimeout(() => setQuery({ q: text, page: null }), 250);
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
        placeholder="Search: rank, node, words   /"
        value={query.value.get("q") ?? ""}
        onInput={(input) => search(input.currentTarget.value)}
        onKeyDown={(press) => press.key === "Escape" && field.current?.blur()}
      />
    </search>
  );
}

const STATES: [string, string][] = [
  ["", "All"],
  ["open", "Open"],
  ["acknowledged", "Acknowledged"],
  ["resolved", "Resolved"],
];

function Facets() {
  const facets = answer.value?.facets;
  const state = query.value.get("state") ?? "";
  const all = facets && Object.values(facets.state).reduce((sum, n) => sum + n, 0);
  const shown = (code: string) => (code ? facets && (facets.state[code] ?? 0) : all);
  return (
    <div class="facets">
      <fieldset class="segmented">
        <legend class="visually-hidden">State</legend>
        {STATES.map(([code, word]) => (
          <button
            key={code}
            type="button"
            aria-pressed={state === code}
            onClick={() => setQuery({ state: code, page: null })}
          >
            {word} <span class="faint">{shown(code) ?? "–"}</span>
          </button>
        ))}
      </fieldset>
      <FacetSelect facet="symptom" word="Symptom" counts={facets?.symptom} table={SYMPTOM} />
      <FacetSelect facet="job" word="Job" counts={facets?.job} table={{}} />
    </div>
  );
}

interface FacetSelectProps {
  facet: string;
  word: string;
  counts: Record<string, number> | undefined;
  table: Record<string, string>;
}

function FacetSelect({ facet, word, counts, table }: FacetSelectProps) {
  const chosen = query.value.get(facet) ?? "";
  const codes = [...new Set([...Object.keys(counts ?? {}), ...(chosen ? [chosen] : [])])];
  return (
    <label class="facet">
      <span>{word}</span>
      <select value={chosen} onChange={(change) => setQuery({ [facet]: change.currentTarget.value, page: null })}>
        <option value="">any</option>
        {codes.map((code) => (
          <option key={code} value={code} selected={code === chosen}>
            {table[code] ?? code} ({counts ? (counts[code] ?? 0) : "–"})
          </option>
        ))}
      </select>
    </label>
  );
}

function NoMatch() {
  const filtered = KEYS.some((key) => query.value.get(key));
  return filtered ? (
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

function List({ rows, selection }: { rows: IncidentRow[]; selection: Selection }) {
  return (
    <ol class="incident-list">
      {rows.map((row) => (
        <Row
          key={row.number}
          row={row}
          chosen={row.number === selection.chosen}
          onChoose={() => selection.choose(row.number)}
        />
      ))}
    </ol>
  );
}

function Row({ row, chosen, onChoose }: { row: IncidentRow; chosen: boolean; onChoose: () => void }) {
  const line = useRef<HTMLLIElement>(null);
  useEffect(() => {
    if (chosen) line.current?.scrollIntoView?.({ block: "nearest" });
  }, [chosen]);
  return (
    <li ref={line} class={chosen ? "chosen" : ""} onFocusIn={onChoose}>
      <StateChip state={row.state} />
      <div class="row-main">
        <a class="stretched" href={`/incidents/${row.number}`} aria-current={chosen ? "true" : undefined}>
          <span class="number">#{row.number}</span> {row.headline}
        </a>
        <div class="row-facts">
          <span>{worded(SYMPTOM, row.symptom)}</span>
          <span>{row.job}</span>
          <ConditionChip row={row} job={liveJob(row.job_id)} />
          {row.regressed && <span class="tag">came back</span>}
          {row.recurrence_of !== null && <span class="tag">again after #{row.recurrence_of}</span>}
          {row.state === "acknowledged" && <span>{row.acknowledged_by} has it</span>}
        </div>
      </div>
      <div class="row-who">
        {row.culprits.length > 0 && <b>rank {rankRanges(row.culprits, 3)}</b>}
        <span class="faint">{row.certainty === "diagnosed" ? worded(COMPONENT, row.component) : "looking …"}</span>
      </div>
      <div class="row-grade">
        <GradeMark grade={row.grade} />
        <span class="faint">{count(row.n_victims, "rank")} waiting</span>
      </div>
      <div class="row-age">
        <Ago at={row.opened_at} />
      </div>
    </li>
  );
}

function Pager({ page, pages }: { page: number; pages: number }) {
  const to = (n: number) => setQuery({ page: n > 1 ? String(n) : null });
  return (
    <nav class="pager" aria-label="Pages of the list">
      <button type="button" disabled={page <= 1} onClick={() => to(page - 1)}>
        ← Newer
      </button>
      <span>
        {page} of {pages}
      </span>
      <button type="button" disabled={page >= pages} onClick={() => to(page + 1)}>
        Older →
      </button>
    </nav>
  );
}
