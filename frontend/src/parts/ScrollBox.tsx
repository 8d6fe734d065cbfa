/*
 * A box that may scroll sideways. While it does it says so, as a cut table looks whole, and the keyboard can reach it;
 * while it does not, it is no extra stop.
 */

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

interface ScrollBoxProps {
  class: string;
  label: string;
  children: ComponentChildren;
}

export function ScrollBox({ class: name, label, children }: ScrollBoxProps) {
  const box = useRef<HTMLDivElement>(null);
  const [scrolls, setScrolls] = useState(false);
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const measure = () => setScrolls(element.scrollWidth > element.clientWidth);
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    for (const child of element.children) observer.observe(child);
    return () => observer.disconnect();
  }, []);
  const reach = scrolls ? { tabIndex: 0, role: "group" as const, "aria-label": `${label}, scrolls sideways` } : {};
  return (
    <div ref={box} class={name} {...reach}>
      {scrolls && <p class="scroll-hint">Scroll sideways for the rest →</p>}
      {children}
    </div>
  );
}
