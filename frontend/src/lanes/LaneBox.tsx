/*
 * The lanes themselves: labels on the left, one canvas with the ruler above it, and the crosshair over it. Labels and
 * canvas agree on tops, as headings stand between the lanes of culprits, victims and others.
 */

import { type Signal, useSignal } from "@preact/signals";
import type { RefObject } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { useWidth } from "../parts/useWidth";
import { pinMoment } from "../state/address";
import { timeOfDay, zone, zoneLabel } from "../state/clock";
import { pointAt, pointedRanks } from "../state/pointed";
import type { Role } from "../state/roles";
import { paletteVersion } from "../state/theme";
import type { Lane, Lanes } from "../types";
import { isKnownAt, laterMs } from "./ends";
import type { LaneGroup } from "./order";
import { HEADING_PX, LANE_PX, laneTops, paintLanes, timeX } from "./paint";
import { conditionWords, counterNames, isReceive, isStuck, type Moment, rulerTicks, tellingTickAt } from "./scale";
import { useSight } from "./useSight";
import { seenOf, ZoomTools, zoomKey, zoomWheel } from "./ZoomTools";
import type { Span } from "./zoom";

interface LaneBoxProps {
  lanes: Lanes;
  groups: readonly LaneGroup[];
  moments: readonly Moment[];
  onSelect: (rank: number | null) => void;
  /** The moment the page shows, ns; null: the newest. */
  pin: number | null;
}

export const HEADING: Record<Role, string> = {
  culprit: "Started it",
  suspect: "One of them started it",
  victim: "Only wait",
  other: "Others",
};

export function LaneBox({ lanes, groups, moments, onSelect, pin: pinned }: LaneBoxProps) {
  const pin = inside(lanes, pinned);
  const [box, width] = useWidth<HTMLDivElement>();
  const [crosshair, setCrosshair] = useState<number | null>(null);
  const view = useSignal<Span | null>(null);
  const readAt = crosshair ?? pin ?? Math.min(lanes.to_ns, lanes.newest_ns);
  const picture = { lanes, groups, moments, width, view };
  return (
    <div class="lanes">
      <ZoomTools lanes={lanes} view={view} at={() => crosshair ?? pin} />
      <SeenRuler {...picture} />
      <div class="lane-groups">
        {groups.map((group) => (
          <section key={group.role} aria-label={HEADING[group.role]}>
            {groups.length > 1 && (
              <h3 class={`lane-heading lane-heading-${group.role}`} style={{ height: `${HEADING_PX}px` }}>
                {HEADING[group.role]}
              </h3>
            )}
            <ol class="lane-labels">
              {group.lanes.map((lane) => (
                <LaneLabel
                  key={lane.id}
                  goesOn={laterMs(lanes) > 0 && readAt >= lanes.to_ns - 1e9}
                  lane={lane}
                  ns={readAt}
                  isKnown={isKnownAt(lanes, readAt)}
                  blamed={group.role === "culprit"}
                  onSelect={onSelect}
                />
              ))}
            </ol>
          </section>
        ))}
      </div>
      <SeenLanes {...picture} box={box} pin={pin} crosshair={crosshair} onMove={setCrosshair} />
    </div>
  );
}

interface PictureProps {
  lanes: Lanes;
  groups: readonly LaneGroup[];
  moments: readonly Moment[];
  width: number;
  view: Signal<Span | null>;
}

function SeenRuler({ lanes, moments, width, view }: PictureProps) {
  const seen = seenOf(lanes, view);
  const inSeen = moments.filter(({ ns }) => inside(seen, ns) !== null);
  return <Ruler lanes={seen} moments={inSeen} width={width} />;
}

interface SeenLanesProps extends PictureProps {
  box: RefObject<HTMLDivElement | null>;
  pin: number | null;
  crosshair: number | null;
  onMove: (ns: number | null) => void;
}

/** The canvas covers what is in sight, of the time that is seen: hundreds of lanes cost what a screenful does. */
function SeenLanes({ lanes, groups, moments, width, view, box, pin, crosshair, onMove }: SeenLanesProps) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const { height } = laneTops(groups);
  const sight = useSight(box, height);
  const seen = seenOf(lanes, view);
  const palette = paletteVersion.value;
  useLayoutEffect(() => {
    if (canvas.current && width > 0 && sight) paintLanes(canvas.current, lanes, groups, moments, width, seen, sight);
  }, [lanes, groups, width, palette, seen.from_ns, seen.to_ns, sight]);
  useEffect(() => {
    const element = box.current;
    // Not as a property: Preact's are passive, and the page itself would be zoomed too.
    const turn = (wheel: WheelEvent) => zoomWheel(wheel, lanes, view);
    element?.addEventListener("wheel", turn, { passive: false });
    return () => element?.removeEventListener("wheel", turn);
  }, [lanes, view]);
  const press = (key: KeyboardEvent) => {
    if (!zoomKey(key, lanes, view, crosshair ?? pin)) return;
    key.preventDefault();
    key.stopPropagation();
  };
  return (
    <div class="lane-canvas" ref={box} style={{ height: `${height}px` }} onKeyDownCapture={press}>
      <canvas ref={canvas} aria-hidden="true" style={{ top: `${sight?.top ?? 0}px` }} />
      <Pin lanes={seen} width={width} ns={inside(seen, pin)} />
      <Crosshair lanes={seen} width={width} ns={crosshair} pin={pin} onMove={onMove} />
    </div>
  );
}

/** More than what is drawn, where more is known than is drawn: nobody must take the picture's length for the hang's. */
export function stuckWords(ms: number, goesOn: boolean): string {
  return goesOn ? `> ${Math.floor(ms / 1000)} s` : `${(ms / 1000).toFixed(1)} s`;
}

interface LaneLabelProps {
  /** More is known than is drawn, and what is drawn ends with this. */
  goesOn: boolean;
  lane: Lane;
  ns: number;
  isKnown: boolean;
  blamed: boolean;
  onSelect: (rank: number | null) => void;
}

function LaneLabel({ goesOn, lane, ns, isKnown, blamed, onSelect }: LaneLabelProps) {
  const i = tellingTickAt(lane, ns);
  const [first, second, third] = counterNames(lane);
  const stuck = isStuck(lane, i);
  return (
    <li
      style={{ height: `${LANE_PX}px` }}
      class={`${blamed ? "blamed" : ""} ${pointedRanks.value.has(lane.rank) ? "pointed" : ""}`}
      onPointerEnter={() => pointAt([lane.rank])}
      onPointerLeave={() => pointAt([])}
    >
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
        {i < 0 && !isKnown ? "Nothing is known of this time yet" : conditionWords(lane, i)}
        {stuck ? ` · ${stuckWords(lane.stuck_ms[i], goesOn)}` : ""}
      </p>
    </li>
  );
}

/** Words stand left of the marks of what came first, where a phone may have no room, and of a last mark at the edge. */
const LEFT_WORD_PX = 100;
const SHORT_WORD_PX = 60;
const RIGHT_WORD_PX = 80;
/** On a narrower ruler a word left of the trigger's mark would lie on the first symptom's. */
const WORDS_APART_PX = 320;

export function Ruler({ lanes, moments, width }: { lanes: Lanes; moments: readonly Moment[]; width: number }) {
  const { stepS, at } = rulerTicks(lanes.from_ns, lanes.to_ns, width);
  const isTall = moments.some(({ kind }) => kind === "began");
  return (
    <>
      <div class="ruler-zone faint">{zone.value ? zoneLabel() : ""}</div>
      <div class={`ruler ${isTall ? "ruler-tall" : ""}`} aria-hidden="true">
        {at.map((ns) => (
          <span key={ns} style={{ left: `${timeX(lanes, ns, width)}px` }}>
            {timeOfDay(ns / 1e6, stepS < 1 ? 1 : 0)}
          </span>
        ))}
        {moments.map((moment) => (
          <Mark key={moment.kind} moment={moment} x={timeX(lanes, moment.ns, width)} width={width} />
        ))}
      </div>
      <p class="visually-hidden">{moments.map(({ word, ns }) => `${word} at ${timeOfDay(ns / 1e6, 1)}`).join(", ")}</p>
    </>
  );
}

const SHORT_WORD: Record<string, string> = {
  "fault began": "began",
  "seen at culprit": "seen",
  "first symptom": "first",
  triggered: "triggered",
};

function Mark({ moment: { kind, word }, x, width }: { moment: Moment; x: number; width: number }) {
  const isLast = width > 0 && kind === "trigger" && x > width - RIGHT_WORD_PX;
  const hasNoRoom = kind !== "trigger" && x < SHORT_WORD_PX;
  // Above the others there is room to the right; beside the trigger's word there is none.
  const isLeft = isLast || (kind !== "trigger" && !(hasNoRoom && kind === "began"));
  if (isLast && width < WORDS_APART_PX) return null;
  const short = isLeft && x < LEFT_WORD_PX ? SHORT_WORD[word] : word;
  return (
    <b class={`ruler-mark mark-${kind} ${isLeft ? "mark-left" : ""}`} style={{ left: `${x}px` }}>
      {hasNoRoom && isLeft ? "" : short}
    </b>
  );
}

/** The moment where it lies in what is drawn; else null: nothing is read of another time. */
export function inside({ from_ns, to_ns }: Lanes, ns: number | null): number | null {
  return ns !== null && ns >= from_ns && ns <= to_ns ? ns : null;
}

/** Where the moment stands that the page shows. */
export function Pin({ lanes, width, ns }: { lanes: Lanes; width: number; ns: number | null }) {
  if (ns === null) return null;
  return <i class="lane-pin" aria-hidden="true" style={{ left: `${timeX(lanes, ns, width)}px` }} />;
}

interface CrosshairProps {
  lanes: Lanes;
  width: number;
  ns: number | null;
  /** Where it stands while nobody moves it; null: at the end. */
  pin?: number | null;
  onMove: (ns: number | null) => void;
  word?: string;
}

const STEP_NS = 1e8;

export function Crosshair({ lanes, width, ns, pin = null, onMove, word = "Moment read by the lanes" }: CrosshairProps) {
  const clamp = (at: number) => Math.max(lanes.from_ns, Math.min(lanes.to_ns, at));
  const at = ns ?? clamp(pin ?? lanes.to_ns);
  const follow = (pointer: PointerEvent) => {
    const left = (pointer.currentTarget as Element).getBoundingClientRect().left;
    onMove(clamp(lanes.from_ns + ((pointer.clientX - left) / width) * (lanes.to_ns - lanes.from_ns)));
  };
  const press = (key: KeyboardEvent) => {
    const step = { ArrowLeft: -STEP_NS, ArrowRight: STEP_NS, PageDown: -10 * STEP_NS, PageUp: 10 * STEP_NS }[key.key];
    if (key.key === "Escape") onMove(null);
    else if (key.key === "Home") onMove(lanes.from_ns);
    else if (key.key === "End") onMove(lanes.to_ns);
    else if (step) onMove(clamp(at + step));
    else if (key.key === "Enter") pinMoment(Math.round(at / 1e6));
    else return;
    key.preventDefault();
  };
  return (
    <div
      class="crosshair"
      role="slider"
      tabIndex={0}
      aria-label={word}
      aria-valuemin={0}
      aria-valuemax={Math.round((lanes.to_ns - lanes.from_ns) / 1e6)}
      aria-valuenow={Math.round((at - lanes.from_ns) / 1e6)}
      aria-valuetext={`${timeOfDay(at / 1e6, 1)} ${zoneLabel()}`}
      onPointerMove={follow}
      onPointerLeave={() => onMove(null)}
      onDblClick={() => pinMoment(Math.round(at / 1e6))}
      title="Double click, or Enter: show everything at this moment"
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
