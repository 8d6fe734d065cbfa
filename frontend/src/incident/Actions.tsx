/*
 * What this user may do now, as buttons and keys. The server's list decides what is offered; after an optimistic change
 * the state decides, until the server's next answer.
 */

import { useRef, useState } from "preact/hooks";
import type { Review } from "../api";
import type { IncidentRow } from "../live/rows";
import { Dialog, ReasonDialog } from "../parts/Dialog";
import { later } from "../parts/later";
import { Refused, useSaying } from "../parts/useSaying";
import { actFirst, actOn, isMine, isUnderWay } from "../state/actions";
import { useKeys } from "../state/keys";
import { type Offer, useOffers } from "../state/offered";
import { session } from "../state/team";
import type { Question } from "./HandlingDialogs";

const SilenceDialog = later(async () => (await import("../silences/SilenceDialog")).SilenceDialog, "the dialog");
const HandlingDialog = later(async () => (await import("./HandlingDialogs")).HandlingDialog, "the dialog");

interface ActionsProps {
  row: IncidentRow;
  may: string[];
  assignable: string[];
  review: Review | null;
  onActed: () => void;
  onComment: () => void;
}

type Asking = "resolve" | "reopen" | "unacknowledge" | "silence" | Question | null;

export function Actions({ row, may, assignable, review, onActed, onComment }: ActionsProps) {
  const [asking, setAsking] = useState<Asking>(null);
  const busy = isUnderWay(row.number);
  const isViewer = may.length === 0;
  const acts = (verb: "acknowledge" | "unacknowledge", body = {}) => void actOn(row, verb, body).then(onActed);
  const offered = offers(row, isViewer);
  const close = () => setAsking(null);
  // Somebody else's: taking it from them needs a second thought.
  const giveBack = () => (!isMine(row) ? setAsking("unacknowledge") : acts("unacknowledge"));
  useKeys({
    // Acknowledges only: the same key twice must not take back what a colleague did in between.
    a: () => offered.acknowledge && !busy && acts("acknowledge"),
    r: () => {
      if (offered.resolve) setAsking("resolve");
      else if (offered.reopen) setAsking("reopen");
    },
    c: () => !isViewer && onComment(),
    s: () => may.includes("silence") && setAsking("silence"),
    m: () => may.includes("assign") && setAsking("assign"),
    w: () => may.includes("review") && setAsking("review"),
  });
  useOffers(offersOf({ row, may, offered, ask: setAsking, onActed, onComment }), JSON.stringify([row, may]));
  if (isViewer) return <p class="may-not">You may look. Acting needs the responder role.</p>;
  return (
    <div class="actions">
      {offered.acknowledge && <Move word="Acknowledge" sign="a" busy={busy} primary act={() => acts("acknowledge")} />}
      {offered.unacknowledge && <Move word="Un-acknowledge" busy={busy} act={giveBack} />}
      {offered.resolve && <Move word="Resolve …" sign="r" busy={busy} act={() => setAsking("resolve")} />}
      {row.state === "resolved" && !row.review && (
        <Move word="What was it? …" sign="w" busy={busy} primary act={() => setAsking("review")} />
      )}
      {offered.reopen && <Move word="Reopen …" sign="r" busy={busy} act={() => setAsking("reopen")} />}
      <button type="button" onClick={onComment}>
        Comment <kbd>c</kbd>
      </button>
      <More row={row} may={may} onActed={onActed} ask={setAsking} />
      <Questions {...{ row, asking, assignable, review, onActed, close }} />
    </div>
  );
}

interface OffersOf {
  row: IncidentRow;
  may: string[];
  offered: ReturnType<typeof offers>;
  ask: (what: Asking) => void;
  onActed: () => void;
  onComment: () => void;
}

/** What the palette lists here beside acknowledging and silencing, which it knows by itself. */
function offersOf({ row, may, offered, ask, onActed, onComment }: OffersOf): Offer[] {
  const asks = (word: string, what: Asking, key = ""): Offer => ({
    word,
    hint: key ? `#${row.number}, key ${key}` : `#${row.number}`,
    run: () => ask(what),
  });
  const acts = (word: string, verb: "assign" | "detach", body = {}): Offer => ({
    word,
    hint: `#${row.number}`,
    run: () => void actOn(row, verb, body).then(onActed),
  });
  const me = session.value?.user ?? "";
  return [
    offered.resolve && asks("Resolve …", "resolve", "r"),
    offered.reopen && asks("Reopen …", "reopen", "r"),
    may.length > 0 && { word: "Comment", hint: `#${row.number}, key c`, run: onComment },
    may.includes("assign") && !isTheirs(row, me) && acts("Assign to me", "assign", { assignee: me }),
    may.includes("assign") && asks("Assign …", "assign", "m"),
    may.includes("attach") && asks("Attach to another …", "attach"),
    may.includes("detach") && acts(`Detach from #${row.attached_to}`, "detach"),
    may.includes("review") && asks("What was it? Review …", "review", "w"),
  ].filter((offer) => offer !== false);
}

/** Assigned to them, or to nobody and they have acknowledged it: who acknowledges has it. */
function isTheirs(row: IncidentRow, who: string): boolean {
  return row.assignee ? row.assignee === who : isMine(row);
}

interface MoreProps {
  row: IncidentRow;
  may: string[];
  onActed: () => void;
  ask: (what: Asking) => void;
}

/** What is done less often, in a menu. */
function More({ row, may, onActed, ask }: MoreProps) {
  const menu = useRef<HTMLDetailsElement>(null);
  const shut = () => {
    if (menu.current) menu.current.open = false;
  };
  const acts = (verb: "acknowledge" | "assign" | "detach", body = {}) => {
    shut();
    void actOn(row, verb, body).then(onActed);
  };
  const asks = (what: Asking) => () => {
    shut();
    ask(what);
  };
  const me = session.value?.user ?? "";
  return (
    <details
      class="more-acts"
      ref={menu}
      onFocusOut={(left) => !menu.current?.contains(left.relatedTarget as Node) && left.relatedTarget && shut()}
      onKeyDown={(press) => {
        if (press.key !== "Escape" || !menu.current?.open) return;
        shut();
        menu.current.querySelector("summary")?.focus();
      }}
    >
      <summary>More</summary>
      <div class="popover">
        {row.state === "open" &&
          [15, 30, 60].map((minutes) => (
            <button key={minutes} type="button" onClick={() => acts("acknowledge", { minutes })}>
              Acknowledge for {minutes} min
            </button>
          ))}
        {may.includes("assign") && !isTheirs(row, me) && (
          <button type="button" onClick={() => acts("assign", { assignee: me })}>
            Assign to me
          </button>
        )}
        {may.includes("assign") && <Asks word="Assign …" sign="m" act={asks("assign")} />}
        {may.includes("silence") && row.state !== "resolved" && (
          <Asks word="Silence …" sign="s" act={asks("silence")} />
        )}
        {may.includes("attach") && <Asks word="Attach to another …" act={asks("attach")} />}
        {may.includes("detach") && (
          <button type="button" onClick={() => acts("detach")}>
            Detach from #{row.attached_to}
          </button>
        )}
        {may.includes("review") && <Asks word="What was it? …" sign="w" act={asks("review")} />}
      </div>
    </details>
  );
}

function Asks({ word, sign, act }: { word: string; sign?: string; act: () => void }) {
  return (
    <button type="button" onClick={act}>
      {word} {sign && <kbd>{sign}</kbd>}
    </button>
  );
}

interface QuestionsProps {
  row: IncidentRow;
  asking: Asking;
  assignable: string[];
  review: Review | null;
  onActed: () => void;
  close: () => void;
}

function Questions({ row, asking, assignable, review, onActed, close }: QuestionsProps) {
  const say = (verb: "resolve" | "reopen" | "unacknowledge") => (text: string) =>
    actFirst(row, verb, verb === "resolve" ? { reason: text } : { note: text }).finally(onActed);
  switch (asking) {
    case "resolve":
      return <ResolveDialog row={row} onClose={close} onSay={say("resolve")} />;
    case "unacknowledge":
      return <TakeBackDialog row={row} onClose={close} onSay={() => say("unacknowledge")("")} />;
    case "reopen":
      return (
        <ReasonDialog
          title={`Reopen incident ${row.number}`}
          hint="Why? (optional)"
          required={false}
          action="Reopen"
          onClose={close}
          onSay={say("reopen")}
        />
      );
    case "silence":
      return (
        <div data-dialog-coming>
          <SilenceDialog row={row} onClose={close} onMade={onActed} />
        </div>
      );
    case null:
      return null;
    default:
      return (
        <div data-dialog-coming>
          <HandlingDialog question={asking} {...{ row, assignable, review, onActed }} onClose={close} />
        </div>
      );
  }
}

interface MoveProps {
  word: string;
  sign?: string;
  busy: boolean;
  primary?: boolean;
  act: () => void;
}

function Move({ word, sign, busy, primary = false, act }: MoveProps) {
  return (
    <button type="button" class={primary ? "primary" : ""} disabled={busy} onClick={act}>
      {word} {sign && <kbd>{sign}</kbd>}
    </button>
  );
}

function offers(row: IncidentRow, isViewer: boolean) {
  return {
    acknowledge: !isViewer && row.state === "open",
    unacknowledge: !isViewer && row.state === "acknowledged",
    resolve: !isViewer && row.state !== "resolved",
    reopen: !isViewer && row.state === "resolved",
  };
}

interface TakeBackDialogProps {
  row: IncidentRow;
  onClose: () => void;
  onSay: () => Promise<unknown>;
}

export function TakeBackDialog({ row, onClose, onSay }: TakeBackDialogProps) {
  const { busy, refused, say } = useSaying(onClose);
  // While ours is under way its answer comes here too: that is no news.
  const gone = busy ? "" : goneWords(row);
  const had = useRef(row.acknowledged_by);
  if (row.acknowledged_by) had.current = row.acknowledged_by;
  if (gone)
    return (
      <Dialog title={gone} onClose={onClose}>
        <p>That changed while you were asked: there is nothing left to take back.</p>
        <div class="dialog-actions">
          <button type="button" class="primary" onClick={onClose}>
            Close
          </button>
        </div>
      </Dialog>
    );
  return (
    <Dialog title={`${had.current} has incident ${row.number}`} onClose={onClose}>
      <p>Without the acknowledgement nobody has it, and it counts as open again.</p>
      <Refused words={refused} />
      <div class="dialog-actions">
        <button type="button" onClick={onClose}>
          Leave it to {had.current}
        </button>
        <button type="button" class="primary" disabled={busy} onClick={() => void say(onSay)}>
          Un-acknowledge
        </button>
      </div>
    </Dialog>
  );
}

/** Why nobody needs to take it from anybody any more; "" while somebody has it. */
function goneWords(row: IncidentRow): string {
  if (row.state === "resolved") return `Incident ${row.number} is resolved`;
  return row.state === "acknowledged" && row.acknowledged_by ? "" : `Nobody has incident ${row.number} any more`;
}

interface ResolveDialogProps {
  row: IncidentRow;
  onClose: () => void;
  onSay: (text: string) => Promise<unknown>;
}

function ResolveDialog({ row, onClose, onSay }: ResolveDialogProps) {
  return (
    <ReasonDialog
      title={`Resolve incident ${row.number}`}
      hint="What was done, or why is it over?"
      required
      action="Resolve"
      warning={row.condition === "firing" ? "The last look still saw it happening." : undefined}
      onClose={onClose}
      onSay={onSay}
    />
  );
}
