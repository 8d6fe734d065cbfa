/*
 * A question asked again and again: some time after each answer, so that a slow server is never asked anew before it has
 * answered, and not while nobody looks at the page. Answers to another question than the present one are dropped.
 */

import { useEffect, useRef, useState } from "preact/hooks";
import { type Answered, useAnswer } from "./useAnswer";

/** `about` names the question, as for useAnswer; `everyMs`: from an answer to the next question. */
export function usePolled<T>(about: string, read: () => Promise<T>, everyMs: number): Answered<T> {
  const [beat, setBeat] = useState(0);
  const [answered, setAnswered] = useState({ about: "" });
  const latest = useRef(about);
  latest.current = about;
  const counted = () => {
    const mine = about;
    return read().finally(() => latest.current === mine && setAnswered({ about: mine }));
  };
  const answer = useAnswer(about, counted, beat);
  useEffect(() => {
    if (answered.about !== about) return;
    return onceSeen(() => setBeat((n) => n + 1), everyMs);
  }, [answered, about]);
  return answer;
}

/** Calls after so long, or when the page is looked at again after that; returns what ends it. */
function onceSeen(then: () => void, afterMs: number): () => void {
  const seen = () => {
    if (document.hidden) return;
    document.removeEventListener("visibilitychange", seen);
    then();
  };
  const timer = setTimeout(() => {
    document.addEventListener("visibilitychange", seen);
    seen();
  }, afterMs);
  return () => {
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", seen);
  };
}
