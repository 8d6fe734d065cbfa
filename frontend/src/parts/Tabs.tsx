/* Tabs whose choice is in the URL. Arrow keys move between them, as the pattern for tabs asks. */

import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { query, stepQuery } from "../state/address";
import { useOffers } from "../state/offered";

export interface Tab {
  id: string;
  word: string;
  content: () => ComponentChildren;
}

export function shownTab(tabs: Tab[]): Tab {
  return tabs.find((tab) => tab.id === query.value.get("tab")) ?? tabs[0];
}

export function showTab(tabs: Tab[], id: string): void {
  stepQuery({ tab: id === tabs[0].id ? null : id });
}

export function Tabs({ tabs, label }: { tabs: Tab[]; label: string }) {
  const shown = shownTab(tabs);
  const strip = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    if (strip.current) bringIntoSight(strip.current);
  }, [shown.id, tabs.map(({ word }) => word).join()]);
  const words = tabs.map(({ word }) => word).join();
  useOffers(
    tabs.map(({ id, word }) => ({ word: `Show ${word}`, hint: "tab", run: () => bringUp(tabs, id) })),
    words,
  );
  const move = (press: KeyboardEvent) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[press.key];
    if (!step) return;
    const next = tabs[(tabs.indexOf(shown) + step + tabs.length) % tabs.length];
    showTab(tabs, next.id);
    document.getElementById(`tab-${next.id}`)?.focus();
    press.preventDefault();
  };
  return (
    <section class="tabs">
      <div ref={strip} role="tablist" aria-label={label} onKeyDown={move}>
        {tabs.map((tab) => (
          <button
            key={tab.id}
            type="button"
            role="tab"
            id={`tab-${tab.id}`}
            aria-selected={tab === shown}
            aria-controls="tab-panel"
            tabIndex={tab === shown ? 0 : -1}
            onClick={() => showTab(tabs, tab.id)}
          >
            {tab.word}
          </button>
        ))}
      </div>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: panels without controls must be reachable */}
      <div id="tab-panel" role="tabpanel" aria-labelledby={`tab-${shown.id}`} tabIndex={0}>
        {shown.content()}
      </div>
    </section>
  );
}

/** Shows a tab to who asked for it by its name, from anywhere on the page. */
function bringUp(tabs: Tab[], id: string): void {
  showTab(tabs, id);
  const tab = document.getElementById(`tab-${id}`);
  tab?.focus({ preventScroll: true });
  tab?.parentElement?.scrollIntoView({ block: "start" });
}

/** On a phone the tabs are wider than the page: the chosen one is shown. scrollIntoView would move the page as well. */
function bringIntoSight(strip: HTMLElement): void {
  const tab = strip.querySelector('[aria-selected="true"]')?.getBoundingClientRect();
  if (!tab) return;
  const { left, right } = strip.getBoundingClientRect();
  strip.scrollLeft += Math.ceil(Math.max(0, tab.right - right)) - Math.ceil(Math.max(0, left - tab.left));
}
