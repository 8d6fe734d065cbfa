/*
 * One question to the server, asked again whenever `beat` changes, while the older answer stays in sight. A beat during a
 * question makes one more question afterwards, so that frequent beats never starve it.
 */

import { useEffect, useRef, useState } from "preact/hooks";

export interface Answered<T> {
  value: T | null;
  failure: Error | null;
  again: () => void;
}

interface Held<T> {
  about: string;
  value: T | null;
  failure: Error | null;
}

/** `about` names the question: another one drops the answer. */
export function useAnswer<T>(about: string, read: () => Promise<T>, beat: string | number = ""): Answered<T> {
  const [held, setHeld] = useState<Held<T>>({ about, value: null, failure: null });
  const asking = useRef({ about: "", isRepeated: false });
  const latest = useRef({ about, read });
  latest.current = { about, read };
  const ask = async () => {
    const wanted = latest.current.about;
    if (asking.current.about === wanted) {
      asking.current.isRepeated = true;
      return;
    }
    const mine = { about: wanted, isRepeated: false };
    asking.current = mine;
    try {
      const value = await latest.current.read();
      if (asking.current === mine) setHeld({ about: wanted, value, failure: null });
    } catch (error) {
      const failed = { about: wanted, failure: error as Error };
      if (asking.current === mine) setHeld((old) => ({ ...failed, value: old.about === wanted ? old.value : null }));
    }
    if (asking.current !== mine) return;
    asking.current = { about: "", isRepeated: false };
    if (mine.isRepeated) void ask();
  };
  useEffect(() => {
    void ask();
  }, [about, beat]);
  const forget = () => {
    asking.current = { about: "", isRepeated: false };
  };
  useEffect(() => forget, []);
  const isCurrent = held.about === about;
  return { value: isCurrent ? held.value : null, failure: isCurrent ? held.failure : null, again: () => void ask() };
}
