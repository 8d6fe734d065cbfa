/*
 * What somebody has begun to write of an incident, kept for this tab until it is sent: a reload, or the way to another
 * page, must not lose it. Of whom and of which incident it is, so that it is never said of another.
 */

import { session } from "./team";

const keyOf = (number: number) => `diogenes.draft.${session.value?.user ?? ""}.${number}`;

export function draftOf(number: number): string {
  try {
    return sessionStorage.getItem(keyOf(number)) ?? "";
  } catch {
    return "";
  }
}

export function keepDraft(number: number, text: string): void {
  try {
    if (text) sessionStorage.setItem(keyOf(number), text);
    else sessionStorage.removeItem(keyOf(number));
  } catch {
    // Storage may be forbidden or full: then it lasts as long as the page.
  }
}
