/* The audit: every act in the teams one administers, newest first. Filters, page and the entry pointed at are in the address. */

import { useEffect, useState } from "preact/hooks";
import { takeAway } from "../api";
import { Ago, Empty, Loading } from "../parts/bits";
import { Failure } from "../parts/Failure";
import { type Column, Table } from "../parts/Table";
import { useAnswer } from "../parts/useAnswer";
import { query, setQuery } from "../state/address";
import { pageTitle } from "../state/badge";
import { absolute } from "../state/clock";
import { notify } from "../state/notices";
import { session } from "../state/team";
import { auditQuery, entryOf, FILTERS, KINDS, pageOf, restOf } from "./auditQuery";
import { type AuditRow, readAudit } from "./calls";
import "./access.css";

const FIRST = { before: null, after: null, entry: null };

export function AuditPage() {
  useEffect(() => {
    pageTitle.value = "Audit";
  }, []);
  const isAdmin = session.value?.role === "admin";
  return (
    <div class="page">
      <div class="list-head">
        <h1>Audit</h1>
        {isAdmin && <TakeAway />}
      </div>
      <p class="faint">
        Who did what: people, tokens, commands on the server, other systems, the console itself. What became of an
        incident step by step stands in its timeline.
      </p>
      {isAdmin ? <Entries /> : <Empty title="Only administrators of a team see who did what in it." />}
    </div>
  );
}

function TakeAway() {
  const [busy, setBusy] = useState(false);
  const take = async () => {
    setBusy(true);
    await takeAway(`audit.csv${auditQuery(query.value, false)}`, "audit.csv").catch((error: Error) =>
      notify(error.message, "bad", "audit"),
    );
    setBusy(false);
  };
  return (
    <button
      type="button"
      disabled={busy}
      onClick={() => void take()}
      title="What is shown, all pages, at most 50,000 entries"
    >
      Download CSV
    </button>
  );
}

function Entries() {
  const asked = auditQuery(query.value);
  const { value, failure, again } = useAnswer(`audit${asked}`, () => readAudit(asked));
  const narrowed = FILTERS.some((name) => query.value.get(name));
  return (
    <>
      <Filters isNarrowed={narrowed} />
      {failure && !value && <Failure error={failure} again={again} />}
      {!value && !failure && <Loading what="the audit" />}
      {value?.entries.length === 0 && <Empty title={narrowed ? "No entry matches." : "Nothing was done yet."} />}
      {value && value.entries.length > 0 && <Rows rows={value.entries} />}
      {value && (value.newer !== null || value.older !== null) && (
        <nav class="pager" aria-label="Pages of the audit">
          <button
            type="button"
            disabled={value.newer === null}
            onClick={() => setQuery({ ...FIRST, after: String(value.newer) })}
          >
            ← Newer
          </button>
          <button
            type="button"
            disabled={value.older === null}
            onClick={() => setQuery({ ...FIRST, before: String(value.older) })}
          >
            Older →
          </button>
        </nav>
      )}
    </>
  );
}

function Filters({ isNarrowed }: { isNarrowed: boolean }) {
  const put = (name: string) => (change: { currentTarget: HTMLInputElement | HTMLSelectElement }) =>
    setQuery({ ...FIRST, [name]: change.currentTarget.value.trim() || null });
  const at = (name: string) => query.value.get(name) ?? "";
  return (
    <search class="facet-choices audit-filters" aria-label="Narrow the audit">
      <label class="facet">
        <span>Who</span>
        <select value={at("kind")} onChange={put("kind")}>
          <option value="">anybody</option>
          {Object.entries(KINDS).map(([kind, word]) => (
            <option key={kind} value={kind} selected={kind === at("kind")}>
              {word}
            </option>
          ))}
        </select>
      </label>
      <label class="facet">
        <span>Name</span>
        <input value={at("actor")} maxLength={150} placeholder="exactly" size={12} onChange={put("actor")} />
      </label>
      <label class="facet">
        <span>Search</span>
        <input
          type="search"
          value={at("q")}
          maxLength={200}
          placeholder="incidents/12, 10.0.0.7 …"
          onChange={put("q")}
        />
      </label>
      <label class="facet">
        <span>From (UTC)</span>
        <input type="date" value={at("since")} onChange={put("since")} />
      </label>
      <label class="facet">
        <span>To (UTC)</span>
        <input type="date" value={at("until")} onChange={put("until")} />
      </label>
      {isNarrowed && (
        <button
          type="button"
          class="quiet"
          onClick={() => setQuery({ ...FIRST, ...Object.fromEntries(FILTERS.map((name) => [name, null])) })}
        >
          Show all
        </button>
      )}
    </search>
  );
}

const COLUMNS: Column<AuditRow>[] = [
  { word: "Who", cell: (row) => <Who row={row} /> },
  { word: "What", cell: (row) => <What row={row} /> },
  {
    word: "When",
    cell: (row) => (
      <a href={`/audit?entry=${row.id}`} title={`${absolute(row.at)}. A link to this entry.`}>
        <Ago at={row.at} />
      </a>
    ),
  },
  { word: "From", isWideOnly: true, cell: (row) => row.address || <span class="faint">–</span> },
  {
    word: "Request",
    isWideOnly: true,
    cell: (row) => (row.request_id ? <code>{row.request_id}</code> : <span class="faint">–</span>),
  },
];

function Rows({ rows }: { rows: AuditRow[] }) {
  const pointed = entryOf(query.value);
  return (
    <Table
      label="Entries of the audit"
      isCards
      columns={COLUMNS}
      rows={rows}
      rowKey={(row) => row.id}
      line={(row) => ({ class: row.id === pointed ? "chosen" : undefined })}
    />
  );
}

function Who({ row }: { row: AuditRow }) {
  return (
    <>
      <button
        type="button"
        class="linklike"
        title={`Only what ${row.actor} did`}
        onClick={() => setQuery({ ...FIRST, actor: row.actor, kind: row.actor_kind })}
      >
        {row.actor || "–"}
      </button>{" "}
      {row.actor_kind !== "user" && <span class="tag">{KINDS[row.actor_kind] ?? row.actor_kind}</span>}
    </>
  );
}

function What({ row }: { row: AuditRow }) {
  const page = pageOf(row.subject);
  const rest = restOf(row.words, row.act, row.subject);
  return (
    <span title={`${row.act} ${row.subject}`.trim()}>
      {page ? <a href={page}>{row.words}</a> : row.words}
      {rest && <span class="faint"> {rest}</span>}
    </span>
  );
}
