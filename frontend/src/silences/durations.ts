/* How long a silence or an acknowledgement may last, as choices. Minutes. */

export const DURATIONS: readonly (readonly [number, string])[] = [
  [30, "30 min"],
  [60, "1 hour"],
  [120, "2 hours"],
  [240, "4 hours"],
  [480, "8 hours"],
  [1440, "1 day"],
  [4320, "3 days"],
  [10080, "1 week"],
];

/** "2h" → 120, "45m" → 45, "1d" → 1440; null when it is none. */
export function minutesOf(text: string): number | null {
  const found = /^(\d{1,4})\s*(m|min|h|d)$/.exec(text.trim());
  if (!found) return null;
  const minutes = Number(found[1]) * { m: 1, min: 1, h: 60, d: 1440 }[found[2] as "m" | "min" | "h" | "d"];
  return minutes > 0 ? minutes : null;
}

/** The time a datetime field holds, as ISO; null while it is empty. It holds UTC or this browser's time, as pages show it. */
export function beginsAt(text: string, isUtc: boolean): string | null {
  const at = text ? Date.parse(isUtc ? `${text}Z` : text) : Number.NaN;
  return Number.isNaN(at) ? null : new Date(at).toISOString();
}
