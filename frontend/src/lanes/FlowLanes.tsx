/*
 * Flow lanes: what every flow of the culprits and the first victims did, on one time axis with the moments of the fault.
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
import { LaneBox } from "./LaneBox";
import { LanesTable } from "./LanesTable";
import { firstOf, laneGroups } from "./order";
import { momentsOf, notKeptUntil, onOneClock, STALL_MS, shownRange } from "./scale";

const SHOWN_AT_FIRST = 12;
/** Data comes once a second: lanes that end so little before it are as new as it is. */
const END_SHOWN_NS = 6e9;

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
  /** Asks for the flows that the server left out; undefined once that was done. */
  onAll?: () => void;
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
          {shown.length} of {count(lanes.lanes.length + lanes.omitted, "flow")}, those of the verdict first
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
      <LaneLegend hasGap={shown.some((lane) => notKeptUntil(lanes, lane) !== null)} />
      <TimeNotes lanes={lanes} given={given} beganNs={finding?.began_ns ?? 0} />
      {lanes.lanes.length === 0 && <p class="faint">No flow of these ranks was in progress in this window.</p>}
      {shown.length > 0 &&
        (asTable ? (
          <LanesTable lanes={shown} toNs={lanes.to_ns} />
        ) : (
          <LaneBox
            lanes={lanes}
            groups={groups}
            moments={momentsOf(lanes, finding?.began_ns ?? 0)}
            onSelect={onSelect}
          />
        ))}
      {folded > 0 && (
        <button type="button" class="more" onClick={() => setAll(true)}>
          Show {folded} more
        </button>
      )}
      {folded === 0 && <LeftOut lanes={lanes} onAll={props.onAll} />}
      <NotVisible lanes={lanes} />
    </section>
  );
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

/** How much later than the lanes' end something is known; 0 where the lanes are as new as it is. */
function laterMs({ newest_ns, to_ns }: Lanes): number {
  return newest_ns - to_ns > END_SHOWN_NS ? (newest_ns - to_ns) / 1e6 : 0;
}

/** Flows that the server did not send: asked for once more, then said. */
function LeftOut({ lanes, onAll }: { lanes: Lanes; onAll?: () => void }) {
  if (lanes.omitted === 0) return null;
  if (onAll) {
    return (
      <button type="button" class="more" onClick={onAll}>
        Load {lanes.omitted} more
      </button>
    );
  }
  return <p class="faint">{count(lanes.omitted, "flow")} not shown: select a rank to see only its flows.</p>;
}

/** What the time axis leaves out or has put right. */
function TimeNotes({ lanes, given, beganNs }: { lanes: Lanes; given: Lanes; beganNs: number }) {
  const later = laterMs(given);
  const early = beganNs > 0 && beganNs < lanes.from_ns ? (lanes.from_ns - beganNs) / 1e6 : 0;
  const moved = lanes.lanes.map((lane, n) => Math.abs((lane.t_ns[0] ?? 0) - (given.lanes[n].t_ns[0] ?? 0)) / 1e6);
  const most = Math.max(0, ...moved);
  if (early === 0 && most === 0 && later === 0) return null;
  return (
    <p class="faint time-notes">
      {early > 0 && `The fault began ${spanWords(early)} before what is shown. `}
      {later > 0 && `Shown until ${timeOfDay(given.to_ns / 1e6)}; what is known goes on for ${spanWords(later)}. `}
      {most > 0 && `Clocks of ${moved.filter((by) => by > 0).length} flows are put right, by up to ${spanWords(most)}.`}
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
