/*
 * A modal question in a native <dialog>: focus trap, Escape and the backdrop come from the browser.
 */

import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { Refused, useSaying } from "./useSaying";

interface DialogProps {
  title: string;
  onClose: () => void;
  children: ComponentChildren;
}

export function Dialog({ title, onClose, children }: DialogProps) {
  const box = useRef<HTMLDialogElement>(null);
  // Before the next key arrives: what is typed at once is meant for the dialog, not for the page's shortcuts.
  useLayoutEffect(() => {
    const dialog = box.current;
    const before = document.activeElement;
    if (dialog && !dialog.open) dialog.showModal();
    return () => {
      dialog?.close();
      // The browser's own way back is lost when the dialog leaves the page.
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  return (
    <dialog
      ref={box}
      aria-labelledby="dialog-title"
      // One that has left the page says late that it is closed, and would close what was opened since.
      onClose={() => box.current && onClose()}
      onCancel={onClose}
      onClick={(click) => click.target === box.current && onClose()}
      onKeyDown={() => undefined}
    >
      <div class="dialog-body">
        <h2 id="dialog-title">{title}</h2>
        {children}
      </div>
    </dialog>
  );
}

/** Beside a button that cannot be pressed yet: what it waits for. */
export function Missing({ what }: { what: readonly (string | false)[] }) {
  const named = what.filter(Boolean);
  return named.length > 0 ? <span class="faint missing">Still missing: {named.join(", ")}</span> : null;
}

interface ReasonDialogProps {
  title: string;
  hint: string;
  required: boolean;
  action: string;
  warning?: string;
  onClose: () => void;
  /** Rejects with why it was refused. */
  onSay: (reason: string) => Promise<unknown>;
}

/** Asks for a sentence; Ctrl+Enter sends it. It stays open until the answer is good. */
export function ReasonDialog({ title, hint, required, action, warning, onClose, onSay }: ReasonDialogProps) {
  const field = useRef<HTMLTextAreaElement>(null);
  const { busy, refused, say } = useSaying(onClose);
  const send = () => {
    const text = field.current?.value.trim() ?? "";
    if (required && !text) {
      if (field.current?.value) field.current.setCustomValidity("Say it in a few words: blanks tell nobody anything.");
      field.current?.reportValidity();
      return;
    }
    void say(() => onSay(text));
  };
  return (
    <Dialog title={title} onClose={onClose}>
      <form
        onSubmit={(submit) => {
          submit.preventDefault();
          send();
        }}
      >
        {warning && <p class="warning">{warning}</p>}
        <label for="reason">{hint}</label>
        <textarea
          id="reason"
          ref={field}
          rows={4}
          required={required}
          maxLength={2000}
          onInput={(input) => input.currentTarget.setCustomValidity("")}
          onKeyDown={(press) => (press.ctrlKey || press.metaKey) && press.key === "Enter" && send()}
        />
        <Refused words={refused} />
        <div class="dialog-actions">
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class="primary" disabled={busy}>
            {action}
          </button>
        </div>
      </form>
    </Dialog>
  );
}
