/*
 * Flow lanes: what every flow of the culprits (of a tie: the suspects) and the first victims did, on one time axis with the moments of the fault.
 * Culprits stand first. A crosshair shared by all lanes reads the counters; the newest counters stand beside each lane
 * in words, and once more in a table.
 */

import { useMemo, useState } from "preact/hooks";
import type { LanesTime } from "../incident/detail";
import { query, setQuery } from "../state/address";
import { spanWords, timeOfDay } from "../state/clock";
import { count } from "../state/words";
import type { Diagnosis, Lanes } from "../types";
import { affectedNames } from "./affected";
import { endWords, laterMs } from "./ends";
import { inside, LaneBox } from "./LaneBox";
import { LanesTable } from "./LanesTable";
import { firstOf, laneGroups } from "./order";
import { momentsOf, notKeptUntil, onOneClock, STALL_MS, shownRange } from "./scale";

const SHOWN_AT_FIRST = 12;

interface FlowLanesProps {
  lanes: Lanes;
  selected: number | null;
  culprits: readonly number[];
  diagnosis: Diagnosis | null;
  nodeOf: (rank: number) => string;
  onSelect: (rank: number | null) => void;
  /** Asks why the selected rank is not blamed. */
  onWhyNot: () => void;
  time?: LanesTime;
  onTime?: (time: LanesTime) => void;
  /** Asks for more of the flows that the server left out; undefined once all it gives are there. */
  onMore?: () => void;
  /** The moment the page shows, ns; null: the newest. */
  pin?: number | null;
  /** Whether it is known that no rank stood still in that time. */
  allGoOn?: boolean;
}

export function FlowLanes(props: FlowLanesProps) {
  const { lanes: given, selected, culprits, diagnosis, nodeOf, onSelect, onWhyNot } = props;
  const asTable = query.value.get("lanes") === "table";
  const [all, setAll] = useState(false);
  const finding = diagnosis?.findings[0] ?? null;
  const lanes = useMemo(
    () => shownRange(onOneClock(given, diagnosis?.clocks ?? [], nodeOf)),
    [given, diagnosis, nodeOf],
  );
  const groups = useMemo(() => {
    const affected = diagnosis ? affectedNames(diagnosis) : [];
    const ordered = laneGroups(lanes, { culprits, victims: diagnosis?.victims ?? [], finding, affected });
    return all ? ordered : firstOf(ordered, SHOWN_AT_FIRST);
  }, [lanes, all, diagnosis, culprits.join()]);
  const shown = groups.flatMap((group) => group.lanes);
  const folded = lanes.lanes.length - shown.length;
  return (
    <section class="panel" aria-labelledby="flows">
      <div class="panel-head">
        <h2 id="flows">Flows</h2>
        <span class="faint">
          {lanes.lanes.length === 0
            ? "none seen in progress"
            : `${shown.length} of ${count(lanes.lanes.length + lanes.omitted, "flow")}, those of the verdict first`}
          {selected === null ? "" : ` · of rank ${selected}`}
        </span>
        <div class="panel-tools">
          {selected !== null && diagnosis && !culprits.includes(selected) && (
            <button type="button" onClick={onWhyNot}>
              Why not rank {selected}?
            </button>
          )}
          {selected !== null && (
            <button type="button" onClick={() => onSelect(null)}>
              Show culprits and first victims
            </button>
          )}
          {props.onTime && <TimeButton lanes={given} time={props.time ?? "fault"} onTime={props.onTime} />}
          <button type="button" aria-pressed={asTable} onClick={() => setQuery({ lanes: asTable ? null : "table" })}>
            View as table
          </button>
        </div>
      </div>
      {shown.length > 0 && (
        <LaneLegend
          hasGap={lanes.newest_ns < lanes.to_ns || shown.some((lane) => notKeptUntil(lanes, lane) !== null)}
        />
      )}
      <TimeNotes lanes={lanes} given={given} beganNs={finding?.began_ns ?? 0} pin={props.pin ?? null} />
      {lanes.lanes.length === 0 && <p>{noneWords(props.allGoOn ?? false)}</p>}
      {shown.length > 0 &&
        (asTable ? (
          <LanesTable lanes={shown} toNs={inside(lanes, props.pin ?? null) ?? lanes.to_ns} />
        ) : (
          <LaneBox
            lanes={lanes}
            groups={groups}
            moments={momentsOf(lanes, finding?.began_ns ?? 0)}
            onSelect={onSelect}
            pin={props.pin ?? null}
          />
        ))}
      {folded > 0 && (
        <button type="button" class="more" onClick={() => setAll(true)}>
          Show {folded} more
        </button>
      )}
      {folded === 0 && <LeftOut lanes={lanes} onMore={props.onMore} />}
      <NotVisible lanes={lanes} />
    </section>
  );
}

/** Why there are no lanes: a fast job is between two ops nearly every time that its flows are looked at. */
function noneWords(allGoOn: boolean): string {
  const looked = "Flows are noted ten times a second, as far as they are in progress";
  return allGoOn
    ? `${looked}: every time these ranks were between two ops. They went on, so this is no sign of trouble.`
    : `${looked}: of these ranks none was in this time.`;
}

/** The server shows a minute; what is known may go on for hours. */
function TimeButton({ lanes, time, onTime }: { lanes: Lanes; time: LanesTime; onTime: (time: LanesTime) => void }) {
  if (time === "newest") {
    return (
      <button type="button" onClick={() => onTime("fault")}>
        Show the fault
      </button>
    );
  }
  if (laterMs(lanes) === 0) return null;
  return (
    <button type="button" onClick={() => onTime("newest")}>
      Show the newest minute
    </button>
  );
}

/** Flows that the server did not send: a further stretch of them is asked for; what no question brings is said. */
function LeftOut({ lanes, onMore }: { lanes: Lanes; onMore?: () => void }) {
  if (lanes.omitted === 0) return null;
  const there = lanes.lanes.length;
  const shown = `${there.toLocaleString("en-US")} of ${count(there + lanes.omitted, "flow")} shown`;
  if (onMore) {
    return (
      <button type="button" class="more" onClick={onMore}>
        Show {Math.min(there, lanes.omitted).toLocaleString("en-US")} more <span class="faint">({shown})</span>
      </button>
    );
  }
  return <p class="faint">{shown}: select a rank to see only its flows.</p>;
}

interface TimeNotesProps {
  lanes: Lanes;
  given: Lanes;
  beganNs: number;
  pin: number | null;
}

/** Where the time axis ends and why, what it leaves out, and what was put right. */
function TimeNotes({ lanes, given, beganNs, pin }: TimeNotesProps) {
  const early = beganNs > 0 && beganNs < lanes.from_ns ? (lanes.from_ns - beganNs) / 1e6 : 0;
  const moved = lanes.lanes.map((lane, n) => Math.abs((lane.t_ns[0] ?? 0) - (given.lanes[n].t_ns[0] ?? 0)) / 1e6);
  const most = Math.max(0, ...moved);
  return (
    <p class="faint time-notes">
      {pin !== null && inside(lanes, pin) === null && `${timeOfDay(pin / 1e6)} lies outside what is drawn here. `}
      {early > 0 && `The fault began ${spanWords(early)} before what is shown. `}
      {endWords(given)}
      {most > 0 &&
        ` Clocks of ${count(moved.filter((by) => by > 0).length, "flow")} are put right, by up to ${spanWords(most)}.`}
    </p>
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
        culprit, suspect: nothing moved for {STALL_MS} ms
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
          nothing is stored of that time
        </li>
      )}
      <li class="faint">height = share of the op's chunks</li>
    </ul>
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
