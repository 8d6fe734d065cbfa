/* What can be done to the marked rows together. Shown while rows are marked; disabled while an act is under way. */

import { ReasonDialog } from "../parts/Dialog";
import { bulkUnderWay, doFirst, doToMany } from "../state/bulk";
import type { Marks } from "../state/marks";
import { session } from "../state/team";
import { count } from "../state/words";

export type BulkAsking = "resolve" | "comment" | null;

interface BulkBarProps {
  marks: Marks;
  asking: BulkAsking;
  ask: (what: BulkAsking) => void;
  onDone: () => void;
}

export function BulkBar({ marks, asking, ask, onDone }: BulkBarProps) {
  if (marks.rows.length === 0) return null;
  const busy = bulkUnderWay.value;
  const done = (isWhole: boolean) => {
    if (isWhole) marks.clear();
    onDone();
  };
  const act = (verb: "acknowledge" | "assign", more: Record<string, unknown> = {}) =>
    void doToMany(verb, marks.rows, more).then(done);
  return (
    <section class="bulk-bar" aria-label="Marked incidents">
      <b>{count(marks.rows.length, "incident")} marked</b>
      <button type="button" class="primary" disabled={busy} onClick={() => act("acknowledge")}>
        Acknowledge <kbd>a</kbd>
      </button>
      <button type="button" disabled={busy} onClick={() => act("assign", { assignee: session.value?.user ?? "" })}>
        Assign to me
      </button>
      <button type="button" disabled={busy} onClick={() => ask("resolve")}>
        Resolve … <kbd>r</kbd>
      </button>
      <button type="button" disabled={busy} onClick={() => ask("comment")}>
        Comment … <kbd>c</kbd>
      </button>
      <button type="button" class="quiet" onClick={marks.clear}>
        Clear <kbd>Esc</kbd>
      </button>
      {asking && (
        <ReasonDialog
          title={`${asking === "resolve" ? "Resolve" : "Comment on"} ${count(marks.rows.length, "incident")}`}
          hint={asking === "resolve" ? "What was done, or why is it over?" : "Comment"}
          required
          action={asking === "resolve" ? "Resolve" : "Comment"}
          warning={stillFiring(marks, asking)}
          onClose={() => ask(null)}
          onSay={async (note) => {
            const isWhole = await doFirst(asking, marks.rows, { note });
            ask(null); // before the bar goes with its marks
            done(isWhole);
          }}
        />
      )}
    </section>
  );
}

function stillFiring(marks: Marks, asking: BulkAsking): string | undefined {
  const n = marks.rows.filter((row) => row.condition === "firing" && row.state !== "resolved").length;
  return asking === "resolve" && n > 0
    ? `The last look still saw ${count(n, "of them", "of them")} happening.`
    : undefined;
}
