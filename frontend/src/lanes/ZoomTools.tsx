/* Buttons, keys and wheel that narrow the lanes' time; what is drawn of it is a signal, so that hundreds of labels stay as they are. */

import type { Signal } from "@preact/signals";
import type { Lanes } from "../types";
import { moved, type Span, within, zoomed } from "./zoom";

const TIMES = 2;
const WHEEL_TIMES = 1.25;
const MOVED = 0.25;

/** What is drawn of the lanes now: the whole, or the narrower part of it. */
export function seenOf(lanes: Lanes, view: Signal<Span | null>): Lanes {
  return view.value ? { ...lanes, ...within(view.value, lanes) } : lanes;
}

interface ZoomToolsProps {
  lanes: Lanes;
  view: Signal<Span | null>;
  /** Around what it zooms, ns. */
  at: () => number | null;
}

export function ZoomTools({ lanes, view, at }: ZoomToolsProps) {
  const isWhole = view.value === null;
  const by = (times: number) => zoomBy(lanes, view, times, at());
  return (
    <div class="lane-zoom">
      {!isWhole && <span class="faint">{spanWords(seenOf(lanes, view))} of the time</span>}
      <fieldset class="segmented small" aria-label="Time drawn">
        <button type="button" aria-label="Zoom in" title="Zoom in: + or Ctrl and wheel" onClick={() => by(1 / TIMES)}>
          +
        </button>
        <button type="button" aria-label="Zoom out" title="Zoom out: −" disabled={isWhole} onClick={() => by(TIMES)}>
          −
        </button>
        <button type="button" disabled={isWhole} title="0" onClick={() => show(view, null)}>
          All
        </button>
      </fieldset>
    </div>
  );
}

function spanWords({ from_ns, to_ns }: Span): string {
  return `${((to_ns - from_ns) / 1e9).toFixed(1)} s`;
}

function zoomBy(lanes: Lanes, view: Signal<Span | null>, times: number, at: number | null): void {
  const { from_ns, to_ns } = seenOf(lanes, view);
  const around = at !== null && at >= from_ns && at <= to_ns ? at : (from_ns + to_ns) / 2;
  show(view, zoomed({ from_ns, to_ns }, lanes, times, around));
}

function moveBy(lanes: Lanes, view: Signal<Span | null>, times: number): void {
  const { from_ns, to_ns } = seenOf(lanes, view);
  if (view.value) show(view, moved({ from_ns, to_ns }, lanes, times));
}

function show(view: Signal<Span | null>, span: Span | null): void {
  view.value = span;
}

/** + − 0 while the crosshair has the focus, and Shift with the arrows; true when the key was one of them. */
export function zoomKey(key: KeyboardEvent, lanes: Lanes, view: Signal<Span | null>, at: number | null): boolean {
  if (key.ctrlKey || key.metaKey || key.altKey) return false;
  if (key.key === "+" || key.key === "=") zoomBy(lanes, view, 1 / TIMES, at);
  else if (key.key === "-") zoomBy(lanes, view, TIMES, at);
  else if (key.key === "0") show(view, null);
  else if (key.shiftKey && key.key === "ArrowLeft") moveBy(lanes, view, -MOVED);
  else if (key.shiftKey && key.key === "ArrowRight") moveBy(lanes, view, MOVED);
  else return false;
  return true;
}

/** Ctrl with the wheel zooms where the pointer is, Shift moves; the plain wheel scrolls the page as ever. */
export function zoomWheel(wheel: WheelEvent, lanes: Lanes, view: Signal<Span | null>): void {
  const isZoom = wheel.ctrlKey || wheel.metaKey;
  if (!isZoom && !(wheel.shiftKey && view.value)) return;
  wheel.preventDefault();
  const { left, width } = (wheel.currentTarget as Element).getBoundingClientRect();
  const { from_ns, to_ns } = seenOf(lanes, view);
  const at = from_ns + ((wheel.clientX - left) / width) * (to_ns - from_ns);
  const turned = wheel.deltaY || wheel.deltaX;
  if (isZoom) zoomBy(lanes, view, turned > 0 ? WHEEL_TIMES : 1 / WHEEL_TIMES, at);
  else moveBy(lanes, view, turned > 0 ? MOVED : -MOVED);
}
