/*
 * How a destination's tickets are worded: a title and a body of plain text with names in braces, and beside them what the newest
 * incident would look like. The server says which names there are and refuses others.
 */

import { useEffect, useState } from "preact/hooks";
import { useAnswer } from "../parts/useAnswer";
import { previewTemplates } from "./calls";

const PAUSE_MS = 300;

export interface TemplateTexts {
  title_template: string;
  body_template: string;
}

interface TemplatesProps {
  /** Which of title and body this kind shows. */
  parts: readonly string[];
  texts: TemplateTexts;
  put: (texts: TemplateTexts) => void;
}

export function Templates({ parts, texts, put }: TemplatesProps) {
  const [isOpen, setOpen] = useState(Boolean(texts.title_template || texts.body_template));
  if (parts.length === 0) return <p class="faint">What this kind sends is made for programs and has no wording.</p>;
  return (
    <details class="templates" open={isOpen} onToggle={(toggle) => setOpen(toggle.currentTarget.open)}>
      <summary>Wording of title{parts.includes("body") ? " and body" : ""}</summary>
      {isOpen && <Fields parts={parts} texts={texts} put={put} />}
    </details>
  );
}

function Fields({ parts, texts, put }: TemplatesProps) {
  const settled = useSettled(texts);
  const about = JSON.stringify(settled);
  const { value, failure } = useAnswer(`preview ${about}`, () => previewTemplates(settled));
  const [known, setKnown] = useState(value);
  useEffect(() => {
    if (value) setKnown(value);
  }, [value]);
  const usual = known?.usual;
  return (
    <>
      <label for="title-template">
        Title <span class="faint">(empty: as usual)</span>
      </label>
      <input
        id="title-template"
        maxLength={300}
        spellcheck={false}
        placeholder={usual?.title_template}
        value={texts.title_template}
        onInput={(input) => put({ ...texts, title_template: input.currentTarget.value })}
      />
      {parts.includes("body") && (
        <>
          <label for="body-template">
            Body <span class="faint">(empty: as usual; a line without any value is left out)</span>
          </label>
          <textarea
            id="body-template"
            rows={5}
            maxLength={4000}
            spellcheck={false}
            placeholder={usual?.body_template}
            value={texts.body_template}
            onInput={(input) => put({ ...texts, body_template: input.currentTarget.value })}
          />
        </>
      )}
      {known && (
        <p class="faint names-known">
          Names:{" "}
          {Object.entries(known.names).map(([name, words]) => (
            <code key={name} title={words}>{`{${name}}`}</code>
          ))}
        </p>
      )}
      <div class="template-preview" aria-live="polite">
        {failure && <p class="warning">{failure.message}</p>}
        {!failure && known && (
          <>
            <span class="faint">{known.incident ? `Incident ${known.incident} would be told as` : "An example"}</span>
            <b>{known.title}</b>
            {parts.includes("body") && known.lines.map((line, n) => <p key={n}>{line}</p>)}
          </>
        )}
      </div>
    </>
  );
}

/** What is typed, once the typing pauses. */
function useSettled(texts: TemplateTexts): TemplateTexts {
  const [settled, setSettled] = useState(texts);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(texts), PAUSE_MS);
    return () => clearTimeout(timer);
  }, [texts.title_template, texts.body_template]);
  return settled;
}
