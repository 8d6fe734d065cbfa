/*
 * What the page in sight offers to do, for the command palette: it lists these acts beside pages and searches, so that
 * what has no key is found by its name too.
 */

import { signal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";

export interface Offer {
  word: string;
  hint: string;
  run: () => void;
}

export const offered = signal<readonly Offer[]>([]);

/** Of each part of the page that offers something, what. */
const parts = new Map<object, readonly Offer[]>();

/** Offers `offers` while the part is shown. `about`: whatever changes them. */
export function useOffers(offers: readonly Offer[], about: string): void {
  const me = useRef({}).current;
  useLayoutEffect(() => {
    const tell = () => {
      offered.value = [...parts.values()].flat();
    };
    parts.set(me, offers);
    tell();
    return () => {
      parts.delete(me);
      tell();
    };
  }, [about]);
}
