/*
 * The URL is the state of what is shown: page, facets, tab and selected rank. Changing one key of the query replaces
 * the entry, going to another page pushes one; a reload or a link sent to a colleague shows the same.
 */

import { computed, signal } from "@preact/signals";

const here = signal(new URL(location.href));

export const path = computed(() => here.value.pathname);
export const query = computed(() => here.value.searchParams);

addEventListener("popstate", () => {
  here.value = new URL(location.href);
});

export function go(to: string): void {
  history.pushState(null, "", to);
  here.value = new URL(location.href);
  scrollTo(0, 0);
}

/** Sets keys of the query; null or "" removes one. */
export function setQuery(changes: Record<string, string | null>): void {
  const next = new URL(here.value);
  for (const [key, value] of Object.entries(changes)) {
    if (value) next.searchParams.set(key, value);
    else next.searchParams.delete(key);
  }
  history.replaceState(null, "", next);
  here.value = next;
}

/** The rank the address names, which every picture of a page marks. */
export function selectedRank(): number | null {
  const raw = query.value.get("rank");
  return raw !== null && /^\d+$/.test(raw) ? Number(raw) : null;
}

export function selectRank(rank: number | null): void {
  setQuery({ rank: rank === null ? null : String(rank) });
}

/** Lets plain clicks on links of this console change the page without a load. */
export function followLinks(root: HTMLElement): void {
  root.addEventListener("click", (click) => {
    const link = (click.target as Element).closest("a");
    if (!link || click.defaultPrevented || click.button !== 0) return;
    if (click.metaKey || click.ctrlKey || click.shiftKey || link.target || link.hasAttribute("download")) return;
    if (link.origin !== location.origin || !isPage(link.pathname)) return;
    click.preventDefault();
    go(link.href);
  });
}

/** Pages this application draws; every other address is the server's. */
export function isPage(pathname: string): boolean {
  return /^\/($|incidents(\/\d+)?$|jobs\/\d+(\/settings)?$|nodes$|bundle(\/[\w-]+)?$|settings$)/.test(pathname);
}
