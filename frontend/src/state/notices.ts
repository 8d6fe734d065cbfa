/*
 * Short notices: shown in a corner, and spoken through the page's one live region. Failures stay until dismissed,
 * because nobody reads a corner while looking at a grid, or until the same is done after all.
 */

import { signal } from "@preact/signals";

export interface Notice {
  id: number;
  text: string;
  tone: "calm" | "bad";
  /** What was tried: a later outcome of the same replaces it. "" stands alone. */
  about: string;
}

export const notices = signal<Notice[]>([]);
export const spoken = signal("");

let next = 1;
const CALM_MS = 5000;

export function notify(text: string, tone: Notice["tone"] = "calm", about = ""): void {
  settle(about);
  const notice = { id: next++, text, tone, about };
  notices.value = [...notices.value, notice].slice(-4);
  announce(text);
  if (tone === "calm") setTimeout(() => dismiss(notice.id), CALM_MS);
}

export function dismiss(id: number): void {
  notices.value = notices.value.filter((notice) => notice.id !== id);
}

/** Takes back what was said of earlier tries: it was done in the end. */
export function settle(about: string): void {
  if (about) notices.value = notices.value.filter((notice) => notice.about !== about);
}

export function announce(text: string): void {
  spoken.value = text;
}
