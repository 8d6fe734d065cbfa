/*
 * Time as people read it: ages that tick, absolute times in one labelled zone (UTC or the browser's), durations with
 * a sensible unit. Ages use the server's clock.
 */

import { signal } from "@preact/signals";
import { clockSkewMs } from "../api";

export type Zone = "utc" | "browser";

export const tick = signal(Date.now());
/** A link may name the zone it was sent in; it holds for this page, and is no choice of its reader. */
export const zone = signal<Zone>(firstZone());

function firstZone(): Zone {
  const sent = new URLSearchParams(location.search).get("z");
  return (sent ?? remembered("zone")) === "browser" ? "browser" : "utc";
}

setInterval(() => {
  tick.value = Date.now();
}, 1000);

/** A per-device choice; storage may be forbidden, then the choice lasts as long as the page. */
export function remembered(key: string): string | null {
  try {
    return localStorage.getItem(`diogenes.${key}`);
  } catch {
    return null;
  }
}

export function remember(key: string, value: string): void {
  try {
    localStorage.setItem(`diogenes.${key}`, value);
  } catch {
    // Nothing to do: private windows refuse storage.
  }
}

export function setZone(next: Zone): void {
  zone.value = next;
  remember("zone", next);
}

export function serverNow(): number {
  return tick.value + clockSkewMs;
}

export function ageWords(ms: number): string {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 2) return "now";
  if (seconds < 90) return `${seconds} s ago`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 90) return `${minutes} min ago`;
  const hours = Math.round(minutes / 60);
  return hours < 48 ? `${hours} h ago` : `${Math.round(hours / 24)} d ago`;
}

/** A duration with two or three significant digits: 840 ms, 2.4 s, 43 s, 12 min. */
export function spanWords(ms: number): string {
  const size = Math.abs(ms);
  if (size < 1000) return `${Math.round(ms)} ms`;
  if (size < 10_000) return `${(ms / 1000).toFixed(1)} s`;
  if (size < 90_000) return `${Math.round(ms / 1000)} s`;
  if (size < 5_400_000) return `${Math.round(ms / 60_000)} min`;
  return `${(ms / 3_600_000).toFixed(1)} h`;
}

/** Time that is left: 43 s, 12 min, 2.4 h, 12 d. */
export function aheadWords(ms: number): string {
  const left = Math.max(0, ms);
  return left < 48 * 3_600_000 ? spanWords(left) : `${Math.round(left / 86_400_000)} d`;
}

const DAY: Intl.DateTimeFormatOptions = { day: "numeric", month: "short" };
const TIME: Intl.DateTimeFormatOptions = { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false };

/** 21 Nov 13:02:11.240 UTC; with its year when that is not this one. */
export function absolute(at: string | number, precise = true): string {
  const moment = new Date(at);
  const options: Intl.DateTimeFormatOptions = {
    ...DAY,
    ...(moment.getUTCFullYear() === new Date().getUTCFullYear() ? {} : { year: "numeric" as const }),
    ...TIME,
    timeZone: zone.value === "utc" ? "UTC" : undefined,
    ...(precise ? { fractionalSecondDigits: 3 as const } : {}),
  };
  return `${new Intl.DateTimeFormat("en-GB", options).format(moment).replace(",", "")} ${zoneLabel()}`;
}

/** Time of day only, for rulers: 13:02:11.2 */
export function timeOfDay(ms: number, digits: 0 | 1 | 2 | 3 = 0): string {
  return new Intl.DateTimeFormat("en-GB", {
    ...TIME,
    timeZone: zone.value === "utc" ? "UTC" : undefined,
    fractionalSecondDigits: digits === 0 ? undefined : digits,
  }).format(new Date(ms));
}

export function zoneLabel(): string {
  if (zone.value === "utc") return "UTC";
  const parts = new Intl.DateTimeFormat("en-GB", { timeZoneName: "short" }).formatToParts(new Date());
  return parts.find((part) => part.type === "timeZoneName")?.value ?? "local";
}
