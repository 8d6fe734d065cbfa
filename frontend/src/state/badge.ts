/*
 * The tab tells the count of unacknowledged incidents: a number before the title, a dot with the number on the icon.
 */

import { effect, signal } from "@preact/signals";
import { openIncidents } from "./team";

export const pageTitle = signal("Now");

export function startBadge(): void {
  effect(() => {
    const n = openIncidents.value.length;
    document.title = `${n > 0 ? `(${n}) ` : ""}${pageTitle.value} · Diogenes`;
    showIcon(n);
  });
}

let shown = -1;

function showIcon(n: number): void {
  if (n === shown) return;
  shown = n;
  let link = document.querySelector<HTMLLinkElement>("link[rel=icon]");
  if (!link) {
    link = document.createElement("link");
    link.rel = "icon";
    document.head.append(link);
  }
  link.type = "image/svg+xml";
  link.href = `data:image/svg+xml,${encodeURIComponent(iconSvg(n))}`;
}

export function iconSvg(n: number): string {
  const badge =
    n === 0
      ? ""
      : `<circle cx="22.5" cy="9.5" r="9.5" fill="#d55e00"/><text x="22.5" y="14" font-family="Arial,sans-serif" font-size="13" font-weight="700" text-anchor="middle" fill="#fff">${n > 9 ? "9+" : n}</text>`;
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="7" fill="#171c22"/><path d="M12 8.5a4 4 0 0 1 8 0M10 12h12M11.5 12l-1.5 12h12l-1.5-12M9 25.5h14" fill="none" stroke="#e6e9ed" stroke-width="2" stroke-linecap="round" stroke-linejoin="round"/><circle cx="16" cy="18.5" r="2.6" fill="#f2a24a"/>${badge}</svg>`;
}
