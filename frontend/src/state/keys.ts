/*
 * Keyboard shortcuts. A page registers its keys while it is shown; the newest registration wins, keys typed into a
 * field or over an open dialog belong to that field or dialog.
 */

import { signal } from "@preact/signals";
import { useLayoutEffect } from "preact/hooks";
import { remember, remembered } from "./clock";

export type Keys = Record<string, () => void>;

/** Single-letter shortcuts can be switched off: speech input and some keyboards type letters by accident. */
export const shortcuts = signal(remembered("shortcuts") !== "off");

export function setShortcuts(on: boolean): void {
  shortcuts.value = on;
  remember("shortcuts", on ? "on" : "off");
}

/** The command palette; Ctrl or Cmd with K opens it anywhere, fields included. */
export const paletteOpen = signal(false);
/** What was typed while the palette was still being fetched; a line break is Enter. */
export const typedAhead = signal("");

/** Open, or being fetched: what is typed meanwhile is meant for it and must not act on the page. */
const DIALOG = "dialog[open], [data-dialog-coming]";

const layers: Keys[] = [];

export function useKeys(keys: Keys): void {
  // Before the next key arrives: Enter right after j opens the row that j selected.
  useLayoutEffect(() => {
    layers.push(keys);
    return () => {
      layers.splice(layers.indexOf(keys), 1);
    };
  });
}

export function startKeys(): void {
  addEventListener("keydown", (press) => {
    if ((press.metaKey || press.ctrlKey) && !press.altKey && press.key.toLowerCase() === "k") {
      press.preventDefault();
      typedAhead.value = "";
      if (paletteOpen.value || !document.querySelector("dialog[open]")) paletteOpen.value = !paletteOpen.value;
      return;
    }
    if (paletteOpen.value && !document.querySelector("dialog[open]")) return typeAhead(press);
    if (press.metaKey || press.ctrlKey || press.altKey || press.defaultPrevented) return;
    if (document.querySelector(DIALOG)) return;
    if (isTyping(press.target as Element | null)) return leaveField(press);
    if (!shortcuts.value || (press.key === "Enter" && actsOnEnter(press.target as Element | null))) return;
    const act = layers.findLast((keys) => press.key in keys)?.[press.key];
    if (!act) return;
    press.preventDefault();
    act();
  });
}

/** Escape leaves a field: the next letter is a shortcut again. */
function leaveField(press: KeyboardEvent): void {
  if (press.key === "Escape") (press.target as HTMLElement).blur();
}

function typeAhead(press: KeyboardEvent): void {
  if (press.metaKey || press.ctrlKey || press.altKey) return;
  if (press.key === "Escape") paletteOpen.value = false;
  else if (press.key === "Backspace") typedAhead.value = typedAhead.value.slice(0, -1);
  else if (press.key === "Enter") typedAhead.value += "\n";
  else if (press.key.length === 1) typedAhead.value += press.key;
  else return;
  press.preventDefault();
}

function isTyping(target: Element | null): boolean {
  return target?.matches?.("input, textarea, select, [contenteditable]") ?? false;
}

function actsOnEnter(target: Element | null): boolean {
  return target?.matches?.("a, button, summary, [role=grid]") ?? false;
}
