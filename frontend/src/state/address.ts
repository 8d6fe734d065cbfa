/*
 * The URL is the state of what is shown: page, facets, tab, selected rank and the moment the pictures show. Going to
 * another page pushes an entry, and so do steps one may want to take back: another tab, rank or moment. Everything else
 * replaces the entry; a reload or a link sent to a colleague shows the same.
 */

import { computed, signal } from "@preact/signals";

const here = signal(new URL(location.href));

export const path = computed(() => here.value.pathname);
export const query = computed(() => here.value.searchParams);

addEventListener("popstate", () => {
  lastStep = { keys: "", at: 0 };
  here.value = new URL(location.href);
});

export function go(to: string): void {
  lastStep = { keys: "", at: 0 };
  history.pushState(null, "", to);
  here.value = new URL(location.href);
  scrollTo(0, 0);
}

type Changes = Record<string, string | null>;

/** Sets keys of the query; null or "" removes one. */
export function setQuery(changes: Changes): void {
  const next = changed(changes);
  history.replaceState(history.state, "", next);
  here.value = next;
}

/** Arrow keys held down, or a slider on its way, are one step. */
const ONE_STEP_MS = 1000;
let lastStep = { keys: "", at: 0 };

/** The same as a step that the browser's Back takes back. To set the same keys in quick succession is one, to remove one is not. */
export function stepQuery(changes: Changes, now = Date.now()): void {
  const next = changed(changes);
  if (next.href === here.value.href) return;
  const keys = Object.entries(changes)
    .map(([key, value]) => (value ? key : `-${key}`))
    .sort()
    .join();
  const isSameStep = keys === lastStep.keys && now - lastStep.at < ONE_STEP_MS;
  lastStep = { keys, at: now };
  if (isSameStep) history.replaceState(history.state, "", next);
  else history.pushState(null, "", next);
  here.value = next;
}

function changed(changes: Changes): URL {
  const next = new URL(here.value);
  for (const [key, value] of Object.entries(changes)) {
    if (value) next.searchParams.set(key, value);
    else next.searchParams.delete(key);
  }
  return next;
}

/** The rank the address names, which every picture of a page marks. */
export function selectedRank(): number | null {
  const raw = query.value.get("rank");
  return raw !== null && /^\d{1,7}$/.test(raw) ? Number(raw) : null;
}

export function selectRank(rank: number | null): void {
  stepQuery({ rank: rank === null ? null : String(rank) });
}

/** The time the address pins, unix ms from and to; null when it pins none. */
export function pinnedTime(): readonly [number, number] | null {
  const [from, to] = ["from", "to"].map((key) => query.value.get(key) ?? "");
  if (!/^\d{10,15}$/.test(from) || !/^\d{10,15}$/.test(to) || Number(to) <= Number(from)) return null;
  return [Number(from), Number(to)];
}

/** The moment that grid, lanes and stacks show, unix ms; null: the newest. */
export function pinnedMoment(): number | null {
  const raw = query.value.get("at") ?? "";
  return /^\d{10,15}$/.test(raw) ? Number(raw) : null;
}

/** Shows another moment, null the newest; a time of the lanes that does not hold it is let go, and so are chosen dumps. */
export function pinMoment(ms: number | null): void {
  const time = pinnedTime();
  const isOutside = time !== null && ms !== null && (ms < time[0] || ms > time[1]);
  stepQuery({
    at: ms === null ? null : String(Math.round(ms)),
    dump: null,
    ...(isOutside && { from: null, to: null }),
  });
}

/** What the address asks for and cannot be read, as it stands there: it is ignored, and has to be said. */
export function unreadable(): string[] {
  const found: string[] = [];
  if (query.value.get("rank") && selectedRank() === null) found.push(`rank=${query.value.get("rank")}`);
  if (query.value.get("at") && pinnedMoment() === null) found.push(`at=${query.value.get("at")}`);
  const times = ["from", "to"].filter((key) => query.value.get(key));
  if (times.length > 0 && !pinnedTime()) found.push(...times.map((key) => `${key}=${query.value.get(key)}`));
  return found;
}

/** An address that shows a colleague the same: tab, rank, moment and filters as they are, the zone, and the time of the lanes if one is shown. */
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
    // A place in this page is gone to, and the keyboard with it; the address stays that of the page.
    const place = link.getAttribute("href")?.startsWith("#") ? document.getElementById(link.hash.slice(1)) : null;
    if (place) return place.focus();
    go(link.href);
  });
}

/** Pages this application draws; every other address is the server's. */
export function isPage(pathname: string): boolean {
  return /^\/($|incidents(\/\d+)?$|jobs\/\d+(\/settings|\/ranks\/\d+)?$|nodes(\/[^/]+)?$|questions$|bundle(\/[\w-]+)?$|silences$|destinations$|scorecard$|settings$|audit$)/.test(
    pathname,
  );
}
