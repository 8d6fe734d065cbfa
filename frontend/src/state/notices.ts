/*
 * Short notices: shown in a corner, and spoken through the page's one live region. Failures stay until dismissed,
 * because nobody reads a corner while looking at a grid.
 */

import { signal } from "@preact/signals";

export interface Notice {
  id: number;
  text: string;
  tone: "calm" | "bad";
}

export const notices = signal<Notice[]>([]);
export const spoken = signal("");

let next = 1;
const CALM_MS = 5000;

export function notify(text: string, tone: Notice["tone"] = "calm"): void {
  const notice = { id: next++, text, tone };
  notices.value = [...notices.value, notice].slice(-4);
  announce(text);
  if (tone === "calm") setTimeout(() => dismiss(notice.id), CALM_MS);
}

export function dismiss(id: number): void {
  notices.value = notices.value.filter((notice) => notice.id !== id);
}

export function announce(text: string): void {
  spoken.value = text;
}
