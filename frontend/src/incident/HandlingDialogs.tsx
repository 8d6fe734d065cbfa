/*
 * Questions behind the less frequent acts: whom to assign, what to attach to, and what it was, asked afterwards.
 */

import { useState } from "preact/hooks";
import type { Review } from "../api";
import type { IncidentRow } from "../live/rows";
import { Dialog, Missing } from "../parts/Dialog";
import { Refused, type Saying, useSaying } from "../parts/useSaying";
import { actFirst } from "../state/actions";
import { session, unresolvedIncidents } from "../state/team";
import { COMPONENT } from "../state/words";

export type Question = "assign" | "attach" | "review";

interface HandlingDialogProps {
  question: Question;
  row: IncidentRow;
  assignable: string[];
  review: Review | null;
  onClose: () => void;
  onActed: () => void;
}

export function HandlingDialog(props: HandlingDialogProps) {
  const { question, row, onClose, onActed } = props;
  const saying = useSaying(onClose);
  const onSay = (body: Record<string, unknown>) =>
    void saying.say(() => actFirst(row, question, body).finally(onActed));
  if (question === "assign") return <AssignDialog {...props} saying={saying} onSay={onSay} />;
  if (question === "attach") return <AttachDialog {...props} saying={saying} onSay={onSay} />;
  return <ReviewDialog {...props} saying={saying} onSay={onSay} />;
}

type SayProps = HandlingDialogProps & { saying: Saying; onSay: (body: Record<string, unknown>) => void };

function AssignDialog({ row, assignable, saying, onClose, onSay }: SayProps) {
  const me = session.value?.user ?? "";
  const [who, setWho] = useState(row.assignee || (assignable.includes(me) ? me : ""));
  return (
    <Dialog title={`Who handles incident ${row.number}?`} onClose={onClose}>
      <form
        onSubmit={(submit) => {
          submit.preventDefault();
          onSay({ assignee: who });
        }}
      >
        <label for="assignee">Assigned to</label>
        <select id="assignee" value={who} onChange={(change) => setWho(change.currentTarget.value)}>
          <option value="">nobody</option>
          {assignable.map((name) => (
            <option key={name} value={name} selected={name === who}>
              {name === me ? `${name} (me)` : name}
            </option>
          ))}
        </select>
        <Buttons
          action="Assign"
          saying={saying}
          missing={[who === row.assignee && "somebody else"]}
          onClose={onClose}
        />
      </form>
    </Dialog>
  );
}

function AttachDialog({ row, saying, onClose, onSay }: SayProps) {
  const [root, setRoot] = useState("");
  const others = unresolvedIncidents.value.filter((one) => one.number !== row.number && one.attached_to === null);
  return (
    <Dialog title={`Attach incident ${row.number}`} onClose={onClose}>
      <form
        onSubmit={(submit) => {
          submit.preventDefault();
          if (Number(root) > 0) onSay({ root: Number(root) });
        }}
      >
        <p>
          It follows from another incident: what people do to that one is done to this one too, until it is detached.
        </p>
        <label for="root">Number of the incident it follows from</label>
        <input
          id="root"
          list="roots"
          inputMode="numeric"
          required
          pattern="\d+"
          value={root}
          onInput={(input) => setRoot(input.currentTarget.value.trim())}
        />
        <datalist id="roots">
          {others.map((one) => (
            <option key={one.number} value={String(one.number)}>
              {one.job}: {one.headline}
            </option>
          ))}
        </datalist>
        <Buttons action="Attach" saying={saying} missing={[!/^\d+$/.test(root) && "a number"]} onClose={onClose} />
      </form>
    </Dialog>
  );
}

const ALARMS: readonly (readonly [string, string])[] = [
  ["real", "Real trouble, worth telling"],
  ["noise", "True, but nobody had to do anything"],
  ["false", "False alarm: nothing was wrong"],
];
const VERDICTS: readonly (readonly [string, string])[] = [
  ["right", "Right"],
  ["partly", "Partly right"],
  ["wrong", "Wrong"],
  ["unknown", "Not known"],
];

/** "3, 5-7" → [3, 5, 6, 7]; null when it cannot be read. */
export function ranksOf(text: string): number[] | null {
  const found: number[] = [];
  for (const part of text.split(",").map((one) => one.trim())) {
    if (!part) continue;
    const range = /^(\d{1,7})(?:\s*[-–]\s*(\d{1,7}))?$/.exec(part);
    if (!range) return null;
    const [from, to] = [Number(range[1]), Number(range[2] ?? range[1])];
    if (to < from || to - from > 63) return null;
    for (let rank = from; rank <= to; rank++) found.push(rank);
  }
  return found.length <= 64 ? found : null;
}

function ReviewDialog({ row, review, saying, onClose, onSay }: SayProps) {
  const [alarm, setAlarm] = useState<string>(review?.alarm ?? "");
  const [verdict, setVerdict] = useState<string>(review?.verdict ?? "");
  const [cause, setCause] = useState(review?.cause ?? "");
  const [component, setComponent] = useState(review?.component ?? "");
  const [ranks, setRanks] = useState((review?.culprits ?? []).join(", "));
  const [node, setNode] = useState(review?.node ?? "");
  const culprits = ranksOf(ranks);
  return (
    <Dialog title={`What was incident ${row.number}?`} onClose={onClose}>
      <form
        class="review-form"
        onSubmit={(submit) => {
          submit.preventDefault();
          onSay({ alarm, verdict, cause: cause.trim(), component, culprits: culprits ?? [], node: node.trim() });
        }}
      >
        <Radios legend="Was it worth telling?" name="alarm" choices={ALARMS} chosen={alarm} onChoose={setAlarm} />
        <Radios
          legend="Was the verdict right?"
          name="verdict"
          choices={VERDICTS}
          chosen={verdict}
          onChoose={setVerdict}
        />
        <label for="cause">True cause, in words</label>
        <textarea
          id="cause"
          rows={2}
          maxLength={4000}
          value={cause}
          onInput={(input) => setCause(input.currentTarget.value)}
        />
        <div class="true-cause">
          <label>
            Component
            <select value={component} onChange={(change) => setComponent(change.currentTarget.value)}>
              <option value="">not known</option>
              {Object.entries(COMPONENT)
                .filter(([code]) => code !== "unknown")
                .map(([code, word]) => (
                  <option key={code} value={code} selected={code === component}>
                    {word}
                  </option>
                ))}
            </select>
          </label>
          <label>
            Ranks
            <input value={ranks} placeholder="3, 5-7" onInput={(input) => setRanks(input.currentTarget.value)} />
          </label>
          <label>
            Node
            <input value={node} maxLength={128} onInput={(input) => setNode(input.currentTarget.value)} />
          </label>
        </div>
        {culprits === null && <p class="warning">Ranks are numbers and ranges with commas, at most 64.</p>}
        <p class="faint">It counts for the scorecard. A later answer replaces it; all are kept in the activity.</p>
        <Buttons
          action="Save"
          saying={saying}
          missing={[
            !alarm && "was it worth telling",
            !verdict && "was the verdict right",
            culprits === null && "ranks that can be read",
          ]}
          onClose={onClose}
        />
      </form>
    </Dialog>
  );
}

interface RadiosProps {
  legend: string;
  name: string;
  choices: readonly (readonly [string, string])[];
  chosen: string;
  onChoose: (code: string) => void;
}

function Radios({ legend, name, choices, chosen, onChoose }: RadiosProps) {
  return (
    <fieldset class="radios">
      <legend>{legend}</legend>
      {choices.map(([code, word]) => (
        <label key={code} class="check">
          <input type="radio" name={name} checked={chosen === code} onChange={() => onChoose(code)} />
          {word}
        </label>
      ))}
    </fieldset>
  );
}

interface ButtonsProps {
  action: string;
  saying: Saying;
  /** What it waits for, in words. */
  missing: readonly (string | false)[];
  onClose: () => void;
}

function Buttons({ action, saying, missing, onClose }: ButtonsProps) {
  return (
    <>
      <Refused words={saying.refused} />
      <div class="dialog-actions">
        <Missing what={missing} />
        <button type="button" onClick={onClose}>
          Cancel
        </button>
        <button type="submit" class="primary" disabled={saying.busy || missing.some(Boolean)}>
          {action}
        </button>
      </div>
    </>
  );
}
