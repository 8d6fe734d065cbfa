/*
 * Table 4 over time and across ranks: a row per rank, time to the right, coloured by what the rank did, with the moments
 * of the fault. Who stood still first and who followed is seen at once; the words at the left are those of the crosshair.
 */

import { useMemo, useState } from "preact/hooks";
import { type Column, Table } from "../parts/Table";
import { useWidth } from "../parts/useWidth";
import { query, setQuery } from "../state/address";
import { spanWords, timeOfDay, zoneLabel } from "../state/clock";
import { pointAt, pointedRanks } from "../state/pointed";
import { rolesOf, suspectsOf } from "../state/roles";
import { count, FLOW_STATE } from "../state/words";
import type { Diagnosis, Lanes, Span, Standing } from "../types";
import { Crosshair, HEADING, inside, Pin, Ruler } from "./LaneBox";
import { HEADING_PX, timeX } from "./paint";
import { momentsOf, shownRange } from "./scale";
import {
  allGoOn,
  CONDITIONS,
  doingWords,
  flowWords,
  frameOf,
  isStanding,
  legendWords,
  type StandingGroup,
  type StandingRow,
  shortWords,
  sideWords,
  spanAt,
  standingGroups,
} from "./standing";

const SHOWN_AT_FIRST = 16;
const ROW_PX = 24;

interface StandingPictureProps {
  standing: Standing;
  /** Whose moments are drawn. */
  lanes: Lanes | null;
  culprits: readonly number[];
  diagnosis: Diagnosis | null;
  nodeOf: (rank: number) => string;
  onSelect: (rank: number | null) => void;
  /** The moment the page shows, ns; null: the newest. */
  pin: number | null;
}

export function StandingPicture({ standing, lanes, culprits, diagnosis, nodeOf, onSelect, pin }: StandingPictureProps) {
  const asTable = query.value.get("standing") === "table";
  const [all, setAll] = useState(false);
  const limit = all ? standing.ranks.length : SHOWN_AT_FIRST;
  const groups = useMemo(
    () =>
      standingGroups(standing, rolesOf(culprits, suspectsOf(diagnosis?.findings[0]), diagnosis?.victims ?? []), limit),
    [standing, diagnosis, culprits.join(), limit],
  );
  const rows = groups.flatMap((group) => group.rows);
  const folded = standing.ranks.length - rows.length;
  const n = standing.ranks.length + standing.omitted;
  const nobody = allGoOn(standing);
  return (
    <section class="panel wide" aria-labelledby="standing">
      <div class="panel-head">
        <h2 id="standing">Who stood still when</h2>
        <span class="faint">
          {rows.length === n ? `all ${count(n, "rank")}` : `${rows.length} of ${count(n, "rank")}`}, by what each did
        </span>
        <div class="panel-tools">
          <button type="button" aria-pressed={asTable} onClick={() => setQuery({ standing: asTable ? null : "table" })}>
            View as table
          </button>
        </div>
      </div>
      {asTable ? (
        <StandingTable rows={rows} nodeOf={nodeOf} />
      ) : nobody ? (
        <p>
          Nobody: {count(standing.ranks.length, "rank")} moved from {timeOfDay(standing.from_ns / 1e6)} to{" "}
          {timeOfDay(standing.to_ns / 1e6)} {zoneLabel()}, or were between two ops.
          {lanes?.lanes.length !== 0 && " What is slow shows below, in the flows."}
        </p>
      ) : (
        <>
          <StandingLegend spans={rows.flatMap((row) => row.spans)} />
          <Tracks
            frame={shownRange(frameOf(standing, lanes))}
            groups={groups}
            beganNs={diagnosis?.findings[0]?.began_ns ?? 0}
            nodeOf={nodeOf}
            onSelect={onSelect}
            pin={pin}
          />
        </>
      )}
      {folded > 0 && (asTable || !nobody) && (
        <button type="button" class="more" onClick={() => setAll(true)}>
          Show {folded} more
        </button>
      )}
      {standing.omitted > 0 && (
        <p class="faint">
          {count(standing.omitted, "rank")} not shown: traces are read of the culprits’ nodes and of those near them.
        </p>
      )}
    </section>
  );
}

interface TracksProps {
  frame: Lanes;
  groups: readonly StandingGroup[];
  beganNs: number;
  nodeOf: (rank: number) => string;
  onSelect: (rank: number | null) => void;
  pin: number | null;
}

function Tracks({ frame, groups, beganNs, nodeOf, onSelect, pin: pinned }: TracksProps) {
  const pin = inside(frame, pinned);
  const [box, width] = useWidth<HTMLDivElement>();
  const [crosshair, setCrosshair] = useState<number | null>(null);
  const moments = momentsOf(frame, beganNs);
  const readAt = crosshair ?? pin ?? frame.to_ns;
  const headed = groups.length > 1;
  return (
    <div class="standing">
      <Ruler lanes={frame} moments={moments} width={width} />
      <div>
        {groups.map(({ role, rows }) => (
          <div key={role}>
            {headed && (
              <h3 class={`lane-heading lane-heading-${role}`} style={{ height: `${HEADING_PX}px` }}>
                {HEADING[role]}
              </h3>
            )}
            <ol class="standing-labels" aria-label={HEADING[role]}>
              {rows.map((row) => (
                <Label key={row.rank} row={row} ns={readAt} node={nodeOf(row.rank)} onSelect={onSelect} />
              ))}
            </ol>
          </div>
        ))}
      </div>
      <div class="lane-canvas standing-tracks" ref={box}>
        {groups.map(({ role, rows }) => (
          <div key={role} aria-hidden="true">
            {headed && <div style={{ height: `${HEADING_PX}px` }} />}
            {rows.map((row) => (
              <div key={row.rank} class="track" style={{ height: `${ROW_PX}px` }}>
                {row.spans.map((span) => (
                  <Bar key={span.from_ns} span={span} frame={frame} />
                ))}
              </div>
            ))}
          </div>
        ))}
        {moments.map(({ kind, ns }) => (
          <i
            key={kind}
            aria-hidden="true"
            class={`moment moment-${kind}`}
            style={{ left: `${timeX(frame, ns, width)}px` }}
          />
        ))}
        <Pin lanes={frame} width={width} ns={pin} />
        <Crosshair
          lanes={frame}
          width={width}
          ns={crosshair}
          pin={pin}
          onMove={setCrosshair}
          word="Moment read by the rows"
        />
      </div>
    </div>
  );
}

function Bar({ span, frame }: { span: Span; frame: Lanes }) {
  const whole = frame.to_ns - frame.from_ns;
  const place = {
    left: `${((span.from_ns - frame.from_ns) / whole) * 100}%`,
    width: `${((span.to_ns - span.from_ns) / whole) * 100}%`,
  };
  return <i class={`bar doing-${span.doing} ${span.verdict ? `side-${span.verdict}` : ""}`} style={place} />;
}

interface LabelProps {
  row: StandingRow;
  ns: number;
  node: string;
  onSelect: (rank: number | null) => void;
}

function Label({ row, ns, node, onSelect }: LabelProps) {
  const span = spanAt(row, ns);
  const stands = isStanding(span);
  const [what, side] = shortWords(span);
  return (
    <li
      style={{ height: `${ROW_PX}px` }}
      class={`${row.role === "culprit" ? "blamed" : ""} ${pointedRanks.value.has(row.rank) ? "pointed" : ""}`}
      onPointerEnter={() => pointAt([row.rank])}
      onPointerLeave={() => pointAt([])}
    >
      <button type="button" class="link" onClick={() => onSelect(row.rank)} title="Show the flows of this rank">
        {row.rank}
      </button>
      <span class="faint standing-node">{node}</span>
      <span class={stands ? "standing-word" : "standing-word faint"}>
        {what}
        {side && <span class="standing-side">, {side}</span>}
      </span>
    </li>
  );
}

/** Only what the picture shows. */
function StandingLegend({ spans }: { spans: readonly Span[] }) {
  const sides = new Set(spans.map((span) => span.verdict));
  return (
    <ul class="legend" aria-label="How to read a row">
      {legendWords(spans).map(([doing, words]) => (
        <li key={doing}>
          <i class={`swatch bar doing-${doing}`} aria-hidden="true" />
          {words} {CONDITIONS.includes(doing) && <code class="faint">{FLOW_STATE[doing]?.formula}</code>}
        </li>
      ))}
      {sides.has("local") && (
        <li>
          <i class="swatch bar side-local" aria-hidden="true" />
          barred: the counters say its own side
        </li>
      )}
      {sides.has("remote") && (
        <li>
          <i class="swatch bar side-remote" aria-hidden="true" />
          hatched: the other side
        </li>
      )}
      {sides.has("overruled") && (
        <li>
          <i class="swatch bar side-overruled" aria-hidden="true" />
          pale: it only waits, though its counters alone say its own side
        </li>
      )}
    </ul>
  );
}

interface TableRow {
  row: StandingRow;
  span: Span;
}

const columns = (nodeOf: (rank: number) => string): Column<TableRow>[] => [
  {
    word: "Rank",
    cell: ({ row }) => (
      <>
        {row.rank} <span class="faint">{nodeOf(row.rank)}</span>
      </>
    ),
  },
  { word: "From", cell: ({ span }) => timeOfDay(span.from_ns / 1e6, 2) },
  { word: "For", isNumber: true, cell: ({ span }) => spanWords((span.to_ns - span.from_ns) / 1e6) },
  { word: "What it did", cell: ({ span }) => doingWords(span) },
  { word: "Both ends say", cell: ({ span }) => sideWords(span) },
  { word: "The flow that shows it, last", cell: ({ span }) => flowWords(span) },
];

function StandingTable({ rows, nodeOf }: { rows: readonly StandingRow[]; nodeOf: (rank: number) => string }) {
  const lines = rows.flatMap((row) => row.spans.map((span) => ({ row, span })));
  return (
    <Table
      label="Who stood still when"
      columns={columns(nodeOf)}
      rows={lines}
      rowKey={({ row, span }) => `${row.rank} ${span.from_ns}`}
    >
      <p class="faint table-note">Counters: posted, ①, ②, ③ of all chunks, as in the lanes below.</p>
    </Table>
  );
}
