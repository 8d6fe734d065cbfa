/*
 * Dark, light, or the system's choice, per device. A cookie carries the choice too, so that the server writes it into
 * the first byte of the page and nothing flashes.
 */

import { signal } from "@preact/signals";
import { remember, remembered } from "./clock";

export type Theme = "system" | "light" | "dark";

const stored = remembered("theme");
export const theme = signal<Theme>(stored === "light" || stored === "dark" ? stored : "system");
/** Raised whenever colours may have changed; canvases repaint on it. */
export const paletteVersion = signal(0);

export function setTheme(next: Theme): void {
  theme.value = next;
  remember("theme", next);
  // The Cookie Store API is missing on plain HTTP, where a first look usually happens.
  // biome-ignore lint/suspicious/noDocumentCookie: see above
  document.cookie = `theme=${next};path=/;max-age=31536000;samesite=lax`;
  showTheme();
}

export function showTheme(): void {
  document.documentElement.dataset.theme = theme.value;
  paletteVersion.value += 1;
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  paletteVersion.value += 1;
});

const probes = new Map<string, HTMLElement>();

/** The colour a CSS custom property stands for now, as the browser resolves it (light-dark() included). */
export function colour(name: string): string {
  let probe = probes.get(name);
  if (!probe) {
    probe = document.createElement("i");
    probe.hidden = true;
    probe.style.color = `var(--${name})`;
    document.body.append(probe);
    probes.set(name, probe);
  }
  return getComputedStyle(probe).color;
}
