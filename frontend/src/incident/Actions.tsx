/*
 * What this user may do now, as buttons and keys. The server's list decides what is offered; after an optimistic change
 * the state decides, until the server's next answer.
 */

import { useState } from "preact/hooks";
import type { IncidentRow } from "../live/rows";
import { Dialog, ReasonDialog } from "../parts/Dialog";
import { actOn, isMine, isUnderWay } from "../state/actions";
import { useKeys } from "../state/keys";

interface ActionsProps {
  row: IncidentRow;
  may: string[];
  onActed: () => void;
  onComment: () => void;
}

type Asking = "resolve" | "reopen" | "unacknowledge" | null;

export function Actions({ row, may, onActed, onComment }: ActionsProps) {
  const [asking, setAsking] = useState<Asking>(null);
  const busy = isUnderWay(row.number);
  const isViewer = may.length === 0;
  const acts = (verb: "acknowledge" | "unacknowledge") => void actOn(row, verb).then(onActed);
  const say = (verb: "resolve" | "reopen") => (text: string) => {
    setAsking(null);
    void actOn(row, verb, verb === "resolve" ? { reason: text } : { note: text }).then(onActed);
  };
  const offered = offers(row, isViewer);
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
  });
  if (isViewer) return <p class="may-not">You may look. Acting needs the responder role.</p>;
  return (
    <div class="actions">
      {offered.acknowledge && <Move word="Acknowledge" sign="a" busy={busy} primary act={() => acts("acknowledge")} />}
      {offered.unacknowledge && <Move word="Un-acknowledge" busy={busy} act={giveBack} />}
      {offered.resolve && <Move word="Resolve …" sign="r" busy={busy} act={() => setAsking("resolve")} />}
      {offered.reopen && <Move word="Reopen …" sign="r" busy={busy} act={() => setAsking("reopen")} />}
      <button type="button" onClick={onComment}>
        Comment <kbd>c</kbd>
      </button>
      {asking === "resolve" && <ResolveDialog row={row} onClose={() => setAsking(null)} onSay={say("resolve")} />}
      {asking === "unacknowledge" && (
        <TakeBackDialog
          row={row}
          onClose={() => setAsking(null)}
          onSay={() => {
            setAsking(null);
            acts("unacknowledge");
          }}
        />
      )}
      {asking === "reopen" && (
        <ReasonDialog
          title={`Reopen incident ${row.number}`}
          hint="Why? (optional)"
          required={false}
          action="Reopen"
          onClose={() => setAsking(null)}
          onSay={say("reopen")}
        />
      )}
    </div>
  );
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

function TakeBackDialog({ row, onClose, onSay }: { row: IncidentRow; onClose: () => void; onSay: () => void }) {
  return (
    <Dialog title={`${row.acknowledged_by} has incident ${row.number}`} onClose={onClose}>
      <p>Without the acknowledgement nobody has it, and it counts as open again.</p>
      <div class="dialog-actions">
        <button type="button" onClick={onClose}>
          Leave it to {row.acknowledged_by}
        </button>
        <button type="button" class="primary" onClick={onSay}>
          Un-acknowledge
        </button>
      </div>
    </Dialog>
  );
}

function ResolveDialog({
  row,
  onClose,
  onSay,
}: {
  row: IncidentRow;
  onClose: () => void;
  onSay: (text: string) => void;
}) {
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
