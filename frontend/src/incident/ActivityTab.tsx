/* The append-only timeline, newest last, and the box for a comment. Every entry says what kind of actor wrote it. */

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import type { IncidentRow, TimelineRow } from "../live/rows";
import { Ago } from "../parts/bits";
import { actOn, isUnderWay } from "../state/actions";
import { readable, VERB, VERB_OBJECT } from "../state/words";
import { TicketsOf } from "../tickets/TicketsOf";

interface ActivityTabProps {
  row: IncidentRow;
  timeline: TimelineRow[];
  mayComment: boolean;
  /** Set by the comment key; the box takes it and says so, so that it takes the focus once. */
  isAsked: boolean;
  onFocused: () => void;
}

export function ActivityTab({ row, timeline, mayComment, isAsked, onFocused }: ActivityTabProps) {
  return (
    <div class="activity">
      <TicketsOf row={row} />
      <ol class="timeline">
        {timeline.map((entry) => (
          <Entry key={entry.id} entry={entry} />
        ))}
      </ol>
      {timeline.length === 0 && <p class="faint">Nothing has happened yet.</p>}
      {mayComment && <CommentBox row={row} isAsked={isAsked} onFocused={onFocused} />}
    </div>
  );
}

const ACTOR_KIND: Record<string, string> = { user: "", detector: "detector", api: "through the API", ticket: "ticket" };

function Entry({ entry }: { entry: TimelineRow }) {
  const kind = ACTOR_KIND[entry.actor_kind] ?? entry.actor_kind;
  const objectOf = VERB_OBJECT[entry.verb];
  const moved = !objectOf && entry.before !== entry.after && entry.before && entry.after;
  return (
    <li class={`entry entry-${entry.actor_kind}`}>
      <i aria-hidden="true" />
      <div>
        <p>
          <b>{entry.actor}</b> {kind && kind !== entry.actor && <span class="tag">{kind}</span>}{" "}
          {VERB[entry.verb] ?? readable(entry.verb).toLowerCase()}
          {objectOf && <Whom of={entry[objectOf]} />}
          {moved && (
            <span class="faint">
              {" "}
              {entry.before.replaceAll("_", " ")} → {entry.after.replaceAll("_", " ")}
            </span>
          )}{" "}
          <span class="faint">
            <Ago at={entry.at} />
          </span>
        </p>
        {entry.note && <p class="note">{entry.note}</p>}
      </div>
    </li>
  );
}

/** Whom or which incident the act concerned. */
function Whom({ of }: { of: string }) {
  return /^\d+$/.test(of) ? (
    <>
      {" "}
      <a href={`/incidents/${of}`}>#{of}</a>
    </>
  ) : (
    <> {of}</>
  );
}

function CommentBox({ row, isAsked, onFocused }: Pick<ActivityTabProps, "row" | "isAsked" | "onFocused">) {
  const field = useRef<HTMLTextAreaElement>(null);
  const [text, setText] = useState("");
  // Before the next key arrives: letters typed right after "c" belong to the comment.
  useLayoutEffect(() => {
    if (!isAsked) return;
    field.current?.focus();
    onFocused();
  }, [isAsked]);
  const send = async () => {
    const said = text.trim();
    if (said && (await actOn(row, "comments", { text: said }))) setText("");
  };
  return (
    <form
      class="comment"
      onSubmit={(submit) => {
        submit.preventDefault();
        void send();
      }}
    >
      <label for="comment">Comment</label>
      <textarea
        id="comment"
        ref={field}
        rows={3}
        maxLength={5000}
        value={text}
        onInput={(input) => setText(input.currentTarget.value)}
        onKeyDown={(press) => (press.ctrlKey || press.metaKey) && press.key === "Enter" && void send()}
      />
      <div class="comment-actions">
        <span class="faint">Ctrl + Enter sends, Esc leaves</span>
        <button type="submit" disabled={!text.trim() || isUnderWay(row.number, "comments")}>
          Comment
        </button>
      </div>
    </form>
  );
}
