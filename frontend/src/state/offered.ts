/*
 * What the page in sight offers to do, for the command palette: it lists these acts beside pages and searches, so that
 * what has no key is found by its name too.
 */

import { signal } from "@preact/signals";
import { useLayoutEffect } from "preact/hooks";

export interface Offer {
  word: string;
  hint: string;
  run: () => void;
}

export const offered = signal<readonly Offer[]>([]);

/** Offers `offers` while the part is shown. `about`: whatever changes them. */
export function useOffers(offers: readonly Offer[], about: string): void {
  useLayoutEffect(() => {
    offered.value = offers;
    return () => {
      offered.value = [];
    };
  }, [about]);
}
