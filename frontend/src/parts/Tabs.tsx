/* Tabs whose choice is in the URL. Arrow keys move between them, as the pattern for tabs asks. */

import type { ComponentChildren } from "preact";
import { query, setQuery } from "../state/address";

export interface Tab {
  id: string;
  word: string;
  content: () => ComponentChildren;
}

export function shownTab(tabs: Tab[]): Tab {
  return tabs.find((tab) => tab.id === query.value.get("tab")) ?? tabs[0];
}

export function showTab(tabs: Tab[], id: string): void {
  setQuery({ tab: id === tabs[0].id ? null : id });
}

export function Tabs({ tabs, label }: { tabs: Tab[]; label: string }) {
  const shown = shownTab(tabs);
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
      <div role="tablist" aria-label={label} onKeyDown={move}>
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
