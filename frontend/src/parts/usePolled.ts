/*
 * A question asked again and again: some time after each answer, so that a slow server is never asked anew before it has
 * answered. Answers to another question than the present one are dropped.
 */

import { useEffect, useState } from "preact/hooks";
import { type Answered, useAnswer } from "./useAnswer";

/** `about` names the question, as for useAnswer; `everyMs`: from an answer to the next question. */
export function usePolled<T>(about: string, read: () => Promise<T>, everyMs: number): Answered<T> {
  const [beat, setBeat] = useState(0);
  const [answered, setAnswered] = useState(0);
  const counted = () => read().finally(() => setAnswered((n) => n + 1));
  const answer = useAnswer(about, counted, beat);
  useEffect(() => {
    if (answered === 0) return;
    const timer = setTimeout(() => setBeat((n) => n + 1), everyMs);
    return () => clearTimeout(timer);
  }, [answered, about]);
  return answer;
}
