/* Which time a question is about: what is newest, a span back from now, or two moments typed. */

import { setQuery } from "../state/address";
import { serverNow } from "../state/clock";
import type { QuestionAnswer } from "./calls";

const SPANS: readonly (readonly [string, number])[] = [
  ["hour", 3600],
  ["6 hours", 6 * 3600],
  ["day", 86_400],
  ["7 days", 7 * 86_400],
  ["30 days", 30 * 86_400],
];
const SPANS_OF_TRACES: readonly (readonly [string, number])[] = [
  ["10 s", 10],
  ["minute", 60],
  ["2 minutes", 120],
];

export function Times({ answer, isOfTraces }: { answer: QuestionAnswer | null; isOfTraces: boolean }) {
  const back = (seconds: number) => {
    const now = serverNow();
    setQuery({ from: String(Math.round(now - seconds * 1000)), to: String(Math.round(now)) });
  };
  const put = (name: "from" | "to", text: string) => {
    const ms = Date.parse(`${text}Z`);
    if (!answer || Number.isNaN(ms)) return;
    const times = { from: answer.from_ms, to: answer.to_ms, [name]: ms };
    setQuery({ from: String(times.from), to: String(times.to) });
  };
  return (
    <>
      <div class="field">
        <label for="ask-over">over</label>
        <select
          id="ask-over"
          value=""
          onChange={(change) => {
            const seconds = Number(change.currentTarget.value);
            if (seconds > 0) back(seconds);
            else setQuery({ from: null, to: null });
            change.currentTarget.value = "";
          }}
        >
          <option value="">choose …</option>
          <option value="0">what is newest</option>
          {(isOfTraces ? SPANS_OF_TRACES : SPANS).map(([word, seconds]) => (
            <option key={word} value={seconds}>
              the last {word}
            </option>
          ))}
        </select>
      </div>
      {(["from", "to"] as const).map((name) => (
        <div class="field" key={name}>
          <label for={`ask-${name}`}>{name} (UTC)</label>
          <input
            id={`ask-${name}`}
            type="datetime-local"
            step={1}
            value={answer ? new Date(name === "from" ? answer.from_ms : answer.to_ms).toISOString().slice(0, 19) : ""}
            onChange={(change) => put(name, change.currentTarget.value)}
          />
        </div>
      ))}
    </>
  );
}
