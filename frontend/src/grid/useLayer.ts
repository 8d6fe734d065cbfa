/* The layer that the address asks for, of the moment that is shown: read when it is wanted, again while it may change. */

import { useEffect, useState } from "preact/hooks";
import { query } from "../state/address";
import { type By, isBy, type Layer, readLayer } from "./layers";
import type { Source } from "./past";

const AGAIN_MS = 10_000;
const SOON_MS = 2000;
/** Moments that a hand passes by are not asked about. */
const REST_MS = 250;

export interface LayerShown {
  by: By | null;
  /** The newest answer of this layer; of another moment while that of the one shown is being read. */
  layer: Layer | null;
  /** Whether it is of the moment that is shown. */
  isCurrent: boolean;
  failure: string;
}

export function layerAsked(): By | null {
  const asked = query.value.get("colour");
  return isBy(asked) ? asked : null;
}

/** source: "" where there are no layers. atMs: an earlier moment, null the newest. */
export function useLayer(source: Source, atMs: number | null): LayerShown {
  const by = source ? layerAsked() : null;
  const about = `${source} ${by}`;
  const moment = `${about} ${atMs}`;
  const [held, setHeld] = useState<{ about: string; moment: string; layer: Layer | null; failure: string }>(NOTHING);
  useEffect(() => {
    if (!by) return;
    return followed(() => readLayer(source, by, atMs), atMs === null ? 0 : REST_MS, {
      said: (layer) => setHeld({ about, moment, layer, failure: "" }),
      failed: (failure) =>
        setHeld((old) => ({ about, moment, layer: old.about === about ? old.layer : null, failure })),
    });
  }, [moment]);
  const isOurs = by !== null && held.about === about;
  const isCurrent = isOurs && held.moment === moment && !held.failure;
  return { by, layer: isOurs ? held.layer : null, isCurrent, failure: isOurs ? held.failure : "" };
}

const NOTHING = { about: "", moment: "", layer: null, failure: "" };

interface Told {
  said: (layer: Layer) => void;
  failed: (failure: string) => void;
}

/** Asks, and again a while after each answer until one is settled; one question at a time. Returns what ends it. */
export function followed(read: () => Promise<Layer>, afterMs: number, told: Told): () => void {
  let timer: ReturnType<typeof setTimeout>;
  let isOver = false;
  const ask = async () => {
    // Nobody looks at a page in the background.
    if (document.hidden) return wait(SOON_MS);
    try {
      const layer = await read();
      if (isOver) return;
      told.said(layer);
      if (!layer.is_settled) wait(AGAIN_MS);
    } catch (error) {
      if (isOver) return;
      told.failed((error as Error).message);
      wait(SOON_MS);
    }
  };
  const wait = (ms: number) => {
    timer = setTimeout(() => void ask(), ms);
  };
  wait(afterMs);
  return () => {
    isOver = true;
    clearTimeout(timer);
  };
}
