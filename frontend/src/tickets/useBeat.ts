/* What is sent and what tickets became changes by itself: a number that rises while the page is in sight. */

import { useEffect, useState } from "preact/hooks";

export function useBeat(everyMs: number): number {
  const [beat, setBeat] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => document.visibilityState === "visible" && setBeat((n) => n + 1), everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
  return beat;
}
