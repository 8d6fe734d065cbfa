/*
 * Which part of a tall element is in sight, with room for scrolling on: hundreds of lanes are drawn only where somebody looks.
 * What is not tall is drawn whole, so that it is in a picture of the whole page, and on paper as much as a canvas holds.
 */

import type { RefObject } from "preact";
import { useLayoutEffect, useState } from "preact/hooks";

export interface Sight {
  top: number;
  bottom: number;
}

/** Steps and margin: a canvas is painted anew only after so much scrolling. */
const STEP_PX = 256;
const TALL_PX = 2048;
/** A canvas of twice as many device pixels is still one. */
const PAPER_PX = 8192;

/** In pixels of the element, null until it is known. height: of the element. */
export function useSight(box: RefObject<HTMLElement | null>, height: number): Sight | null {
  const [sight, setSight] = useState<Sight | null>(null);
  useLayoutEffect(() => {
    const look = () => {
      const top = box.current?.getBoundingClientRect().top ?? 0;
      const next = inSight(-top, innerHeight, height);
      setSight((now) => (now && now.top === next.top && now.bottom === next.bottom ? now : next));
    };
    const print = () => setSight({ top: 0, bottom: Math.min(height, PAPER_PX) });
    look();
    addEventListener("beforeprint", print);
    addEventListener("afterprint", look);
    addEventListener("scroll", look, { passive: true, capture: true });
    addEventListener("resize", look);
    const observer = new ResizeObserver(look); // what stands above may grow
    observer.observe(document.body);
    return () => {
      observer.disconnect();
      removeEventListener("beforeprint", print);
      removeEventListener("afterprint", look);
      removeEventListener("scroll", look, { capture: true });
      removeEventListener("resize", look);
    };
  }, [height]);
  return sight;
}

/** Of an element `height` tall whose pixel `scrolled` lies at the top of a window `room` tall. */
export function inSight(scrolled: number, room: number, height: number): Sight {
  if (height <= TALL_PX) return { top: 0, bottom: height };
  const top = Math.floor((scrolled - STEP_PX) / STEP_PX) * STEP_PX;
  const bottom = Math.ceil((scrolled + room + STEP_PX) / STEP_PX) * STEP_PX;
  return { top: Math.max(0, Math.min(top, height)), bottom: Math.max(0, Math.min(bottom, height)) };
}
