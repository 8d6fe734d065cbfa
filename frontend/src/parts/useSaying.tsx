/*
 * What a dialog asks of the server: until the answer is good it stays open with what was typed in it, says why it was
 * refused and can be sent again. Left before the answer came, a refusal is a notice.
 */

import { useEffect, useRef, useState } from "preact/hooks";
import { notify } from "../state/notices";

export interface Saying {
  busy: boolean;
  /** Why the last try was refused. */
  refused: string;
  /** One at a time; `act` rejects with the sentence to show. */
  say: (act: () => Promise<unknown>) => Promise<void>;
}

export function useSaying(onClose: () => void): Saying {
  const [{ busy, refused }, put] = useState({ busy: false, refused: "" });
  const isOpen = useRef(true);
  const isBusy = useRef(false);
  useEffect(
    () => () => {
      isOpen.current = false;
    },
    [],
  );
  const say = async (act: () => Promise<unknown>) => {
    if (isBusy.current) return;
    isBusy.current = true;
    put({ busy: true, refused: "" });
    const words = await act().then(
      () => null,
      (error: Error) => error.message,
    );
    isBusy.current = false;
    if (isOpen.current) put({ busy: false, refused: words ?? "" });
    if (words === null && isOpen.current) onClose();
    if (words !== null && !isOpen.current) notify(words, "bad");
  };
  return { busy, refused, say };
}

/** Why the server refused, in the dialog that asked. */
export function Refused({ words, id }: { words: string; id?: string }) {
  if (!words) return null;
  return (
    <p class="warning" role="alert" id={id}>
      {words}
    </p>
  );
}
