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
  return raw !== null && /^\d{1,7}$/.test(raw) ? Number(raw) : null;
}

export function selectRank(rank: number | null): void {
  setQuery({ rank: rank === null ? null : String(rank) });
}

/** The time the address pins, unix ms from and to; null when it pins none. */
export function pinnedTime(): readonly [number, number] | null {
  const [from, to] = ["from", "to"].map((key) => query.value.get(key) ?? "");
  if (!/^\d{10,15}$/.test(from) || !/^\d{10,15}$/.test(to) || Number(to) <= Number(from)) return null;
  return [Number(from), Number(to)];
}

/** What the address asks for and cannot be read, as it stands there: it is ignored, and has to be said. */
export function unreadable(): string[] {
  const found: string[] = [];
  if (query.value.get("rank") && selectedRank() === null) found.push(`rank=${query.value.get("rank")}`);
  const times = ["from", "to"].filter((key) => query.value.get(key));
  if (times.length > 0 && !pinnedTime()) found.push(...times.map((key) => `${key}=${query.value.get(key)}`));
  return found;
}

/** An address that shows a colleague the same: tab, rank and filters as they are, the zone, and the time if one is shown. */
export function permalink(zone: string, time: readonly [number, number] | null): string {
  const link = new URL(here.value);
  link.searchParams.delete("in");
  link.searchParams.set("z", zone);
  if (time) {
    link.searchParams.set("from", String(Math.floor(time[0])));
    link.searchParams.set("to", String(Math.ceil(time[1])));
  }
  return link.href;
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
  return /^\/($|incidents(\/\d+)?$|jobs\/\d+(\/settings|\/ranks\/\d+)?$|nodes(\/[^/]+)?$|questions$|bundle(\/[\w-]+)?$|silences$|destinations$|scorecard$|settings$)/.test(
    pathname,
  );
}
