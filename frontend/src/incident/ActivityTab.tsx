/* The append-only timeline, newest last, and the box for a comment. Every entry says what kind of actor wrote it. */

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { readOlderTimeline } from "../api";
import type { IncidentRow, TimelineRow } from "../live/rows";
import { Ago } from "../parts/bits";
import { actOn, isUnderWay } from "../state/actions";
import { draftOf, keepDraft } from "../state/drafts";
import { count, readable, VERB, VERB_OBJECT } from "../state/words";
import { TicketsOf } from "../tickets/TicketsOf";

interface ActivityTabProps {
  row: IncidentRow;
  timeline: TimelineRow[];
  /** How many entries are older than those. */
  older?: number;
  mayComment: boolean;
  /** Set by the comment key; the box takes it and says so, so that it takes the focus once. */
  isAsked: boolean;
  onFocused: () => void;
}

export function ActivityTab({ row, timeline, older = 0, mayComment, isAsked, onFocused }: ActivityTabProps) {
  const earlier = useEarlier(row.number, timeline, older);
  const list = useRef<HTMLOListElement>(null);
  const [said, setSaid] = useState(0);
  // What one has just said comes into sight, once it was taken: the box below it may have pushed it out.
  useEffect(() => {
    if (said > 0) list.current?.lastElementChild?.scrollIntoView({ block: "center" });
  }, [said]);
  const showOwn = () => setSaid((n) => n + 1);
  return (
    <div class="activity">
      <TicketsOf row={row} />
      {earlier.left > 0 && (
        <p>
          <button type="button" class="small" disabled={earlier.isAsking} onClick={earlier.ask}>
            Show older entries
          </button>{" "}
          <span class="faint">
            {count(earlier.left, "older entry is", "older entries are")} not shown. {earlier.failure}
          </span>
        </p>
      )}
      <ol class="timeline" ref={list}>
        {[...earlier.entries, ...timeline].map((entry) => (
          <Entry key={entry.id} entry={entry} />
        ))}
      </ol>
      {timeline.length === 0 && <p class="faint">Nothing has happened yet.</p>}
      {mayComment && <CommentBox key={row.number} row={row} isAsked={isAsked} onFocused={onFocused} onSent={showOwn} />}
    </div>
  );
}

interface Earlier {
  entries: TimelineRow[];
  left: number;
}

/** Entries older than the timeline's, part by part as somebody asks for them. */
function useEarlier(number: number, timeline: TimelineRow[], older: number) {
  const [read, setRead] = useState<Earlier | null>(null);
  const [isAsking, setAsking] = useState(false);
  const [failure, setFailure] = useState("");
  const before = useRef(timeline);
  const kept = before.current === timeline ? read : carried(read, before.current, timeline);
  useLayoutEffect(() => {
    before.current = timeline;
    setRead(kept);
  }, [timeline]);
  const oldest = (of: Earlier | null) => of?.entries[0]?.id ?? before.current[0]?.id;
  const ask = () => {
    const from = oldest(kept);
    if (from === undefined) return;
    setAsking(true);
    readOlderTimeline(number, from)
      .then((found) => {
        const left = found.timeline_left_out ?? 0;
        // Asked from where it no longer ends: another question is needed.
        setRead((now) =>
          oldest(now) === from ? { entries: [...found.timeline, ...(now?.entries ?? [])], left } : now,
        );
        setFailure("");
      })
      .catch((error: Error) => setFailure(error.message))
      .finally(() => setAsking(false));
  };
  return { entries: kept?.entries ?? [], left: kept?.left ?? older, isAsking, failure, ask };
}

/**
 * What was read of the time before the timeline, when the timeline begins later than before: with what it has let go of, so
 * that none is missing between. null where entries between are not known, or it is another incident's.
 */
export function carried(read: Earlier | null, before: TimelineRow[], now: TimelineRow[]): Earlier | null {
  const [first, last] = [now[0], before.at(-1)];
  if (!read || !first || !last || last.id < first.id || last.incident !== first.incident) return null;
  const letGo = before.filter((entry) => entry.id < first.id);
  return letGo.length === 0 ? read : { ...read, entries: [...read.entries, ...letGo] };
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

interface CommentBoxProps extends Pick<ActivityTabProps, "row" | "isAsked" | "onFocused"> {
  onSent: () => void;
}

function CommentBox({ row, isAsked, onFocused, onSent }: CommentBoxProps) {
  const field = useRef<HTMLTextAreaElement>(null);
  const [text, setText] = useState(() => draftOf(row.number));
  const write = (said: string) => {
    setText(said);
    keepDraft(row.number, said);
  };
  // Before the next key arrives: letters typed right after "c" belong to the comment.
  useLayoutEffect(() => {
    if (!isAsked) return;
    field.current?.focus();
    onFocused();
  }, [isAsked]);
  const send = async () => {
    const said = text.trim();
    if (!said) return;
    if (!(await actOn(row, "comments", { text: said }))) return;
    write("");
    onSent();
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
        onInput={(input) => write(input.currentTarget.value)}
        onKeyDown={(press) => (press.ctrlKey || press.metaKey) && press.key === "Enter" && void send()}
      />
      <div class="comment-actions">
        <span class="faint">Ctrl + Enter sends, Esc leaves{text && "; kept in this tab until it is sent"}</span>
        <button type="submit" disabled={!text.trim() || isUnderWay(row.number, "comments")}>
          Comment
        </button>
      </div>
    </form>
  );
}
