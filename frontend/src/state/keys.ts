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
    if (press.metaKey || press.ctrlKey || press.altKey || press.defaultPrevented) return;
    if (isTyping(press.target as Element | null) || document.querySelector("dialog[open]")) return;
    if (!shortcuts.value || (press.key === "Enter" && actsOnEnter(press.target as Element | null))) return;
    const act = layers.findLast((keys) => press.key in keys)?.[press.key];
    if (!act) return;
    press.preventDefault();
    act();
  });
}

function isTyping(target: Element | null): boolean {
  return target?.matches?.("input, textarea, select, [contenteditable]") ?? false;
}

function actsOnEnter(target: Element | null): boolean {
  return target?.matches?.("a, button, summary, [role=grid]") ?? false;
}
