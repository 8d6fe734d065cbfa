/*
 * Zoom of the grid: a part of it in sight, scrolled by the browser itself (finger, wheel, scrolling page), by dragging, and so
 * that a cell one goes to by keys or selects elsewhere comes into sight.
 */

import type { RefObject } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { GridLayout } from "./layout";
import { RING_ROOM_PX } from "./paint";
import { heightInSight, isInSight, magnified, scrolledTo, timesMax } from "./zoom";

export const STEP_TIMES = 2;
const WHEEL_TIMES = 1.25;
/** A hand that moves less has clicked. */
const DRAG_MIN_PX = 4;

interface Point {
  x: number;
  y: number;
}

export interface Zoom {
  port: RefObject<HTMLDivElement | null>;
  times: number;
  most: number;
  /** The layout as it is in sight. */
  drawn: GridLayout;
  by: (times: number, cell?: number) => void;
  whole: () => void;
  scrolled: () => void;
  /** Begins a drag where there is something to move. */
  hold: (pointer: PointerEvent) => void;
  /** Whether the click ends a drag. */
  hasDragged: () => boolean;
}

/** shown: the cell that must be in sight when it changes, -1 none. */
export function useZoom(layout: GridLayout, shown: number): Zoom {
  const port = useRef<HTMLDivElement>(null);
  const [asked, setAsked] = useState(1);
  const [at, setAt] = useState({ left: 0, top: 0 });
  const aim = useRef<{ point: Point; from: Point } | null>(null);
  const most = timesMax(layout);
  const times = Math.min(asked, most);
  const height = heightInSight(layout, times, innerHeight);
  const drawn = useMemo(
    () => (times === 1 ? layout : magnified(layout, { times, ...at }, height)),
    [layout, times, at, height],
  );
  const scrolled = () => {
    const { scrollLeft = 0, scrollTop = 0 } = port.current ?? {};
    setAt((now) => (now.left === scrollLeft && now.top === scrollTop ? now : { left: scrollLeft, top: scrollTop }));
  };
  const scrollTo = (place: { left: number; top: number }) => {
    if (!port.current) return;
    port.current.scrollLeft = place.left;
    port.current.scrollTop = place.top;
    scrolled();
  };
  const centre = () => ({ x: drawn.width / 2, y: drawn.height / 2 });
  const around = (factor: number, from: Point) => {
    const next = Math.max(1, Math.min(most, times * factor));
    if (next === times) return;
    aim.current = { point: { x: (from.x + at.left) / times, y: (from.y + at.top) / times }, from };
    setAsked(next);
  };
  useLayoutEffect(() => {
    if (times === 1) scrollTo({ left: 0, top: 0 });
    else if (aim.current) scrollTo(scrolledTo(aim.current.point, times, aim.current.from));
    aim.current = null;
  }, [times, layout]);
  useLayoutEffect(() => {
    if (times === 1 || shown < 0 || isInSight(drawn, shown)) return;
    scrollTo(scrolledTo({ x: layout.x[shown], y: layout.y[shown] }, times, centre()));
  }, [shown, layout]);
  useWheel(port, (wheel) => {
    const corner = port.current?.getBoundingClientRect();
    if (!corner) return;
    const from = { x: wheel.clientX - corner.left - RING_ROOM_PX, y: wheel.clientY - corner.top - RING_ROOM_PX };
    around(wheel.deltaY > 0 ? 1 / WHEEL_TIMES : WHEEL_TIMES, from);
  });
  const drag = useDrag(port);
  return {
    port,
    times,
    most,
    drawn,
    by: (factor, cell = -1) =>
      around(factor, cell >= 0 && isInSight(drawn, cell) ? { x: drawn.x[cell], y: drawn.y[cell] } : centre()),
    whole: () => setAsked(1),
    scrolled,
    hold: (pointer) => times > 1 && drag.hold(pointer),
    hasDragged: drag.hasDragged,
  };
}

/** Ctrl with the wheel; the plain wheel scrolls as ever. Not as a property: Preact's are passive, and the page would be zoomed too. */
function useWheel(port: RefObject<HTMLDivElement | null>, turn: (wheel: WheelEvent) => void): void {
  const newest = useRef(turn);
  newest.current = turn;
  useEffect(() => {
    const element = port.current;
    const hear = (wheel: WheelEvent) => {
      if (!wheel.ctrlKey && !wheel.metaKey) return;
      wheel.preventDefault();
      newest.current(wheel);
    };
    element?.addEventListener("wheel", hear, { passive: false });
    return () => element?.removeEventListener("wheel", hear);
  }, []);
}

/** By mouse or pen: fingers scroll by themselves. */
function useDrag(port: RefObject<HTMLDivElement | null>) {
  const far = useRef(0);
  const hold = (pointer: PointerEvent) => {
    const element = port.current;
    if (!element || pointer.pointerType === "touch" || pointer.button !== 0) return;
    far.current = 0;
    const [left, top] = [element.scrollLeft + pointer.clientX, element.scrollTop + pointer.clientY];
    const move = (moved: PointerEvent) => {
      const by = [left - moved.clientX - element.scrollLeft, top - moved.clientY - element.scrollTop];
      far.current += Math.abs(by[0]) + Math.abs(by[1]);
      if (far.current < DRAG_MIN_PX) return;
      element.scrollLeft += by[0];
      element.scrollTop += by[1];
    };
    const end = () => {
      removeEventListener("pointermove", move);
      removeEventListener("pointerup", end);
      removeEventListener("pointercancel", end);
    };
    addEventListener("pointermove", move);
    addEventListener("pointerup", end);
    addEventListener("pointercancel", end);
  };
  const hasDragged = () => {
    const was = far.current >= DRAG_MIN_PX;
    far.current = 0;
    return was;
  };
  return { hold, hasDragged };
}
