/*
 * Flow lanes: what every flow of the culprits and the first victims did, on one time axis. A crosshair shared by all
 * lanes reads the counters; the newest counters stand beside each lane in words, and once more in a table.
 */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { useWidth } from "../parts/useWidth";
import { query, setQuery } from "../state/address";
import { timeOfDay, zone, zoneLabel } from "../state/clock";
import { paletteVersion } from "../state/theme";
import { count } from "../state/words";
import type { Finding, Lane, Lanes } from "../types";
import { LanesTable } from "./LanesTable";
import { tellingFirst } from "./order";
import { LANE_PX, paintLanes, timeX } from "./paint";
import {
  conditionWords,
  counterNames,
  isReceive,
  isStuck,
  notKeptUntil,
  rulerTicks,
  STALL_MS,
  shownRange,
  tellingTickAt,
} from "./scale";

const SHOWN_AT_FIRST = 12;

interface FlowLanesProps {
  lanes: Lanes;
  selected: number | null;
  culprits: readonly number[];
  finding: Finding | null;
  onSelect: (rank: number | null) => void;
}

export function FlowLanes({ lanes, selected, culprits, finding, onSelect }: FlowLanesProps) {
  const asTable = query.value.get("lanes") === "table";
  const [all, setAll] = useState(false);
  const shown = useMemo(() => {
    const ordered = tellingFirst(lanes, culprits, finding);
    return { ...lanes, lanes: all ? ordered : ordered.slice(0, SHOWN_AT_FIRST) };
  }, [lanes, all, finding, culprits.join()]);
  const folded = lanes.lanes.length - shown.lanes.length;
  return (
    <section class="panel" aria-labelledby="flows">
      <div class="panel-head">
        <h2 id="flows">Flows</h2>
        <span class="faint">
          {shown.lanes.length} of {count(lanes.lanes.length + lanes.omitted, "flow")}, those of the verdict first
          {selected === null ? "" : ` · of rank ${selected}`}
        </span>
        <div class="panel-tools">
          {selected !== null && (
            <button type="button" onClick={() => onSelect(null)}>
              Show culprits and first victims
            </button>
          )}
          <button type="button" aria-pressed={asTable} onClick={() => setQuery({ lanes: asTable ? null : "table" })}>
            View as table
          </button>
        </div>
      </div>
      <LaneLegend hasGap={shown.lanes.some((lane) => notKeptUntil(lanes, lane) !== null)} />
      {lanes.lanes.length === 0 && <p class="faint">No flow of these ranks was in progress in this window.</p>}
      {lanes.lanes.length > 0 &&
        (asTable ? <LanesTable lanes={shown} /> : <LaneBox lanes={shown} culprits={culprits} onSelect={onSelect} />)}
      {folded > 0 && (
        <button type="button" class="more" onClick={() => setAll(true)}>
          Show {folded} more
        </button>
      )}
      <NotVisible lanes={lanes} />
    </section>
  );
}

function LaneLegend({ hasGap }: { hasGap: boolean }) {
  return (
    <ul class="legend" aria-label="How to read a lane">
      <li>
        <i class="swatch lane-ready" aria-hidden="true" />
        ready
      </li>
      <li>
        <i class="swatch lane-transmitted" aria-hidden="true" />
        transmitted
      </li>
      <li>
        <i class="swatch lane-done" aria-hidden="true" />
        done
      </li>
      <li>
        <i class="swatch lane-stall" aria-hidden="true" />
        culprit: nothing moved for {STALL_MS} ms
      </li>
      <li>
        <i class="swatch lane-wait" aria-hidden="true" />
        only waits
      </li>
      <li>
        <i class="swatch lane-op" aria-hidden="true" />
        the next op begins
      </li>
      {hasGap && (
        <li>
          <i class="swatch lane-gap" aria-hidden="true" />
          not kept: nothing is stored of that time
        </li>
      )}
      <li class="faint">height = share of the op's chunks</li>
    </ul>
  );
}

function LaneBox({ lanes: given, culprits, onSelect }: Omit<FlowLanesProps, "selected" | "finding">) {
  const lanes = useMemo(() => shownRange(given), [given]);
  const [box, width] = useWidth<HTMLDivElement>();
  const canvas = useRef<HTMLCanvasElement>(null);
  const [crosshair, setCrosshair] = useState<number | null>(null);
  const palette = paletteVersion.value;
  useEffect(() => {
    if (canvas.current && width > 0) paintLanes(canvas.current, lanes, culprits, width);
  }, [lanes, culprits.join(), width, palette]);
  const readAt = crosshair ?? given.to_ns;
  return (
    <div class="lanes">
      <Ruler lanes={lanes} width={width} />
      <ol class="lane-labels">
        {lanes.lanes.map((lane) => (
          <LaneLabel key={lane.id} lane={lane} ns={readAt} blamed={culprits.includes(lane.rank)} onSelect={onSelect} />
        ))}
      </ol>
      <div class="lane-canvas" ref={box}>
        <canvas ref={canvas} aria-hidden="true" />
        <Crosshair lanes={lanes} width={width} ns={crosshair} onMove={setCrosshair} />
      </div>
    </div>
  );
}

interface LaneLabelProps {
  lane: Lane;
  ns: number;
  blamed: boolean;
  onSelect: (rank: number | null) => void;
}

function LaneLabel({ lane, ns, blamed, onSelect }: LaneLabelProps) {
  const i = tellingTickAt(lane, ns);
  const [first, second, third] = counterNames(lane);
  const stuck = isStuck(lane, i);
  return (
    <li style={{ height: `${LANE_PX}px` }} class={blamed ? "blamed" : ""}>
      <p class="lane-name">
        <button type="button" class="link" onClick={() => onSelect(lane.rank)} title="Show this rank only">
          {isReceive(lane) ? `${lane.rank} ← ${lane.peer_rank}` : `${lane.rank} → ${lane.peer_rank}`}
        </button>
        <span>
          {lane.comm_name} <span class="faint">ch {lane.channel}</span>
        </span>
        <span class="faint">{i >= 0 && `${lane.func} ${lane.ops[i]}`}</span>
        {i >= 0 && (
          <span class="lane-counters" title={`${first}, ${second}, ${third} of ${lane.total_chunks} chunks`}>
            {lane.ready[i]}·{lane.transmitted[i]}·{lane.done[i]}
            <span class="faint">/{lane.total_chunks}</span>
          </span>
        )}
      </p>
      <p class={`lane-words ${stuck ? "stuck" : "faint"}`}>
        {conditionWords(lane, i)}
        {stuck ? ` · ${(lane.stuck_ms[i] / 1000).toFixed(1)} s` : ""}
      </p>
    </li>
  );
}

/** "first symptom" stands left of its mark, where a phone may have no room for it. */
const FIRST_WORD_PX = 100;

function Ruler({ lanes, width }: { lanes: Lanes; width: number }) {
  const { stepS, at } = rulerTicks(lanes.from_ns, lanes.to_ns, width);
  const marks: [number | null, string, string][] = [
    [lanes.first_symptom_ns, "first symptom", "first"],
    [lanes.triggered_ns, "triggered", "trigger"],
  ];
  return (
    <>
      <div class="ruler-zone faint">{zone.value ? zoneLabel() : ""}</div>
      <div class="ruler" aria-hidden="true">
        {at.map((ns) => (
          <span key={ns} style={{ left: `${timeX(lanes, ns, width)}px` }}>
            {timeOfDay(ns / 1e6, stepS < 1 ? 1 : 0)}
          </span>
        ))}
        {marks.map(
          ([ns, word, kind]) =>
            ns !== null &&
            ns >= lanes.from_ns &&
            ns <= lanes.to_ns && (
              <b key={kind} class={`ruler-mark mark-${kind}`} style={{ left: `${timeX(lanes, ns, width)}px` }}>
                {kind === "first" && timeX(lanes, ns, width) < FIRST_WORD_PX ? "first" : word}
              </b>
            ),
        )}
      </div>
    </>
  );
}

interface CrosshairProps {
  lanes: Lanes;
  width: number;
  ns: number | null;
  onMove: (ns: number | null) => void;
}

const STEP_NS = 1e8;

function Crosshair({ lanes, width, ns, onMove }: CrosshairProps) {
  const clamp = (at: number) => Math.max(lanes.from_ns, Math.min(lanes.to_ns, at));
  const follow = (pointer: PointerEvent) => {
    const left = (pointer.currentTarget as Element).getBoundingClientRect().left;
    onMove(clamp(lanes.from_ns + ((pointer.clientX - left) / width) * (lanes.to_ns - lanes.from_ns)));
  };
  const press = (key: KeyboardEvent) => {
    const step = { ArrowLeft: -STEP_NS, ArrowRight: STEP_NS, PageDown: -10 * STEP_NS, PageUp: 10 * STEP_NS }[key.key];
    if (key.key === "Escape") onMove(null);
    else if (key.key === "Home") onMove(lanes.from_ns);
    else if (key.key === "End") onMove(lanes.to_ns);
    else if (step) onMove(clamp((ns ?? lanes.to_ns) + step));
    else return;
    key.preventDefault();
  };
  const at = ns ?? lanes.to_ns;
  return (
    <div
      class="crosshair"
      role="slider"
      tabIndex={0}
      aria-label="Moment read by the lanes"
      aria-valuemin={0}
      aria-valuemax={Math.round((lanes.to_ns - lanes.from_ns) / 1e6)}
      aria-valuenow={Math.round((at - lanes.from_ns) / 1e6)}
      aria-valuetext={`${timeOfDay(at / 1e6, 1)} ${zoneLabel()}`}
      onPointerMove={follow}
      onPointerLeave={() => onMove(null)}
      onKeyDown={press}
    >
      {ns !== null && (
        <i style={{ left: `${timeX(lanes, ns, width)}px` }}>
          <b>{timeOfDay(ns / 1e6, 1)}</b>
        </i>
      )}
    </div>
  );
}

function NotVisible({ lanes }: { lanes: Lanes }) {
  if (lanes.not_visible.length === 0) return null;
  const whys = [...new Set(lanes.not_visible.map((one) => `${one.comm_name}: ${one.why}`))];
  return (
    <details class="not-visible">
      <summary>
        {count(whys.length, "communicator")} not visible here: the ranks work inside the node, without network flows
      </summary>
      <ul>
        {whys.map((why) => (
          <li key={why}>{why}</li>
        ))}
      </ul>
    </details>
  );
}
