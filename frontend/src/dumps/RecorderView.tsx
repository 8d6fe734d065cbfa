/*
 * What PyTorch's Flight Recorder kept: findings best first, then per process group who has queued, begun and finished
 * which op, and of a chosen rank the last op per group and stream. The incident's tab and a bundle's page draw the same.
 */

import { useMemo, useState } from "preact/hooks";
import { Empty, GradeMark } from "../parts/bits";
import { type Column, Table } from "../parts/Table";
import { spanWords } from "../state/clock";
import { pointAt } from "../state/pointed";
import { count, rankRanges, readable } from "../state/words";
import type { Finding } from "../types";
import { SilentRanks } from "./DumpsBar";
import { groupsInQuestion, type RecordedRow, titleOf, waits } from "./recorded";
import type { LastOp, RecorderAnswer, RecorderGroup } from "./shapes";
import { nobodyWords, refusedTotal, silentTotal } from "./unheard";

const GROUPS_SHOWN = 12;
const REFUSED_SHOWN = 20;

interface RecorderViewProps {
  recorder: RecorderAnswer;
  /** Nodes that have not answered: of their ranks nothing is known either. */
  awaited?: number;
  selected: number | null;
  onSelect: (rank: number | null) => void;
}

export function RecorderView({ recorder, awaited = 0, selected, onSelect }: RecorderViewProps) {
  const groups = useMemo(() => groupsInQuestion(recorder), [recorder]);
  const [shown, setShown] = useState(GROUPS_SHOWN);
  const { silent } = recorder;
  const isEmpty = groups.length === 0 && silent.length === 0 && refusedTotal(recorder) === 0;
  if (isEmpty) return <Empty title="No Flight Recorder dump has arrived." />;
  return (
    <div class="recorder">
      {recorder.moving && (
        <p class="recorder-moving" role="note">
          <i aria-hidden="true" /> {recorder.moving}
        </p>
      )}
      {recorder.findings.length === 0 ? (
        <p class="names-nobody">
          {nobodyWords(
            recorder,
            groups.flatMap(({ rows }) => rows),
            awaited,
          )}
        </p>
      ) : (
        <Findings findings={recorder.findings} />
      )}
      <SilentRanks silent={silent} total={silentTotal(silent, recorder.silent_count)} what="Flight Recorder" />
      <RefusedFiles refused={recorder.refused} total={refusedTotal(recorder)} />
      {groups.slice(0, shown).map(({ group, rows }) => (
        <GroupPanel key={group.name} group={group} rows={rows} selected={selected} onSelect={onSelect} />
      ))}
      {groups.length > shown && (
        <button type="button" class="more" onClick={() => setShown(shown + 2 * GROUPS_SHOWN)}>
          {count(groups.length - shown, "more process group")}
        </button>
      )}
      <LastOps rows={recorder.last_ops} selected={selected} />
      {groups.length > 0 && (
        <p class="faint">
          Dumps of version {recorder.version || "unknown"}
          {recorder.backend ? `, ${recorder.backend}` : ""}.{leftOutWords(recorder)}
        </p>
      )}
    </div>
  );
}

function leftOutWords({ left_out }: RecorderAnswer): string {
  const { groups = 0, rows = 0, last_ops = 0 } = left_out ?? {};
  const said = [
    groups > 0 && count(groups, "group"),
    rows > 0 && count(rows, "rank’s standing", "ranks’ standings"),
    last_ops > 0 && count(last_ops, "last op"),
  ].filter(Boolean);
  return said.length > 0 ? ` Too many to show: ${said.join(", ")}.` : "";
}

function Findings({ findings }: { findings: readonly Finding[] }) {
  return (
    <ol class="others recorder-findings" aria-label="Findings of the Flight Recorder, best first">
      {findings.map((finding) => (
        <li key={`${finding.rule} ${finding.subject.name} ${finding.sentence}`}>
          <GradeMark grade={finding.grade} /> <span>{finding.sentence}</span>
        </li>
      ))}
    </ol>
  );
}

function RefusedFiles({ refused, total }: { refused: Record<string, string>; total: number }) {
  const files = Object.entries(refused);
  if (total === 0) return null;
  return (
    <section class="doubts" aria-label="Refused files">
      <h3>{count(total, "dump")} could not be read</h3>
      <ul>
        {files.slice(0, REFUSED_SHOWN).map(([file, why]) => (
          <li key={file}>
            <code>{file}</code>: {why}
          </li>
        ))}
      </ul>
      {total > REFUSED_SHOWN && <p class="faint">and {(total - REFUSED_SHOWN).toLocaleString("en-US")} more</p>}
    </section>
  );
}

interface GroupPanelProps {
  group: RecorderGroup;
  rows: readonly RecordedRow[];
  selected: number | null;
  onSelect: (rank: number | null) => void;
}

function GroupPanel({ group, rows, selected, onSelect }: GroupPanelProps) {
  const id = `group-${group.name}`;
  return (
    <section class="panel" aria-labelledby={id}>
      <div class="panel-head">
        <h2 id={id}>{titleOf(group)}</h2>
        {titleOf(group) !== group.name && <code class="faint">{group.name}</code>}
        <span class="faint">
          {group.members
            ? `ranks ${rankRanges(group.members, 8)}`
            : `seen in it: ranks ${rankRanges(
                group.ranks.map(({ rank }) => rank),
                8,
              )}`}
        </span>
        {group.inferred && (
          <span class="tag" title="The dumps do not say who belongs to it; it was read off who did its ops.">
            members inferred
          </span>
        )}
      </div>
      {group.said && <p>{group.said}</p>}
      <Table
        label={`Ranks of ${titleOf(group)}`}
        isCards
        columns={columnsOf(selected, onSelect)}
        rows={rows}
        rowKey={(_, n) => n}
        line={(row) => ({
          class: `recorded ${row.ranks.includes(selected ?? -1) ? "chosen" : ""} standing-${row.standing.replaceAll(" ", "-")}`,
        })}
      />
    </section>
  );
}

const number = (n: number | null) => (n === null ? "–" : n.toLocaleString("en-US"));

const columnsOf = (selected: number | null, onSelect: (rank: number | null) => void): Column<RecordedRow>[] => [
  {
    word: "Ranks",
    cell: ({ ranks }) => (
      <button
        type="button"
        class="link"
        aria-pressed={selected !== null && ranks.includes(selected)}
        onClick={() => onSelect(selected !== null && ranks.includes(selected) ? null : ranks[0])}
        onPointerEnter={() => pointAt(ranks)}
        onPointerLeave={() => pointAt([])}
        title="Show its last ops"
      >
        {rankRanges(ranks, 6)}
      </button>
    ),
  },
  { word: "Standing", cell: (row) => <StandingWord row={row} /> },
  {
    word: "Queued",
    isNumber: true,
    title: "number of the newest op it put into the queue",
    cell: ({ one }) => number(one.enqueued),
  },
  { word: "Begun", isNumber: true, cell: ({ one }) => number(one.started) },
  { word: "Finished", isNumber: true, cell: ({ one }) => number(one.completed) },
  { word: "Newest op", cell: ({ one }) => (one.op ? <code>{one.op}</code> : "–") },
  {
    word: "Size",
    cell: ({ one }) => (
      <>
        {one.size || "–"} {!one.size.includes(one.dtype) && <span class="faint">{one.dtype}</span>}
      </>
    ),
  },
  { word: "State", cell: ({ one }) => readable(one.state) },
  { word: "Age", isNumber: true, cell: (row) => ageWords(row) },
];

function StandingWord({ row: { standing, lag, waitsIn, one } }: { row: RecordedRow }) {
  if (standing === "with the rest" && waits(one))
    return (
      <>
        <i class="swatch swatch-waiting" aria-hidden="true" /> waits in it
      </>
    );
  if (standing === "waits")
    return (
      <>
        <i class="swatch swatch-waiting" aria-hidden="true" /> {count(lag, "op")} behind: waits in {waitsIn}
      </>
    );
  if (standing === "behind")
    return (
      <b class="behind">
        <i class="swatch swatch-culprit" aria-hidden="true" /> {count(lag, "op")} behind
      </b>
    );
  if (standing === "other")
    return (
      <b class="behind">
        <i class="swatch swatch-culprit" aria-hidden="true" /> not what most do
      </b>
    );
  if (standing === "unknown")
    return (
      <>
        <i class="swatch swatch-unknown" aria-hidden="true" /> unknown
      </>
    );
  return <span class="faint">{standing === "earlier" ? `${count(lag, "op")} earlier, nobody waits` : standing}</span>;
}

function ageWords({ ageFrom, ageTo }: RecordedRow): string {
  if (ageFrom === null || ageTo === null) return "–";
  const [from, to] = [spanWords(ageFrom * 1000), spanWords(ageTo * 1000)];
  return from === to ? from : `${from} to ${to}`;
}

const LAST_COLUMNS: Column<LastOp>[] = [
  { word: "Process group", cell: ({ group }) => group },
  { word: "Op", cell: ({ op }) => <code>{op}</code> },
  { word: "Number", isNumber: true, cell: ({ seq }) => number(seq) },
  { word: "State", cell: ({ state }) => readable(state) },
  { word: "Stream", cell: ({ stream }) => (stream === null || stream === "" ? "not told" : stream) },
];

function LastOps({ rows, selected }: { rows: readonly LastOp[]; selected: number | null }) {
  if (rows.length === 0) return null;
  const mine = rows.filter(({ rank }) => rank === selected);
  return (
    <section class="panel" aria-labelledby="last-ops">
      <div class="panel-head">
        <h2 id="last-ops">{selected === null ? "Last op per group and stream" : `Last ops of rank ${selected}`}</h2>
      </div>
      {mine.length > 0 ? (
        <Table label="Last ops" isCards columns={LAST_COLUMNS} rows={mine} rowKey={(_, n) => n} />
      ) : (
        <p class="faint">
          {selected === null
            ? "Choose a rank above to see its last op in every group."
            : "No dump of this rank was kept."}
        </p>
      )}
    </section>
  );
}
