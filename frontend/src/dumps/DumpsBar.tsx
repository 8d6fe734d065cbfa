/*
 * Which dumps are shown, how many nodes have answered, whose answer is missing and why, and the button that takes them
 * again. While nodes still answer the page follows the live messages; every few seconds it asks as well, as a message
 * may be lost.
 */

import { useEffect, useState } from "preact/hooks";
import { takeAway } from "../api";
import type { DumpsRow } from "../live/rows";
import { Ago } from "../parts/bits";
import { type Answered, useAnswer } from "../parts/useAnswer";
import { pinnedMoment, query, setQuery } from "../state/address";
import { serverNow, spanWords, timeOfDay, zoneLabel } from "../state/clock";
import { announce, notify } from "../state/notices";
import { mayAct } from "../state/team";
import { count, rankRanges } from "../state/words";
import type { DumpRequest, DumpsAnswer, SilentRank } from "./shapes";
import { askDumps, readDumps, type Source } from "./source";
import { type Total, totalWords } from "./unheard";

const ASK_AGAIN_MS = 5000;

/** A word that changes when there may be something new to read. */
export function beatOf(row: DumpsRow | null): string {
  return row ? `${row.request} ${row.nodes_answered} ${row.ranks_answered}` : "";
}

export function useDumps(source: Source, row: DumpsRow | null): Answered<DumpsAnswer> {
  const dumps = useAnswer(source, () => readDumps(source), beatOf(row));
  const isOpen = dumps.value?.requests[0]?.state === "open";
  const isRefused = dumps.value?.can_ask === false;
  useEffect(() => {
    if (!isOpen && !isRefused) return;
    const timer = setInterval(dumps.again, ASK_AGAIN_MS);
    return () => clearInterval(timer);
  }, [source, isOpen, isRefused]);
  return dumps;
}

/**
 * The request the address names, else the newest that anybody has answered, else the newest. While the page shows an earlier
 * moment: of those asked for until then; null when there is none.
 */
export function shownRequest(requests: readonly DumpRequest[], kind: string): DumpRequest | null {
  const asked = requests.filter((one) => one.kinds.includes(kind));
  const named = asked.find((one) => String(one.id) === query.value.get("dump"));
  const moment = pinnedMoment();
  const known = moment === null ? asked : asked.filter((one) => Date.parse(one.asked_at) <= moment);
  return named ?? known.find((one) => one.ranks_answered > 0) ?? known[0] ?? null;
}

/** How the dumps stand to the moment that the page shows: never taken for those of that moment without a word. */
function OfMoment({ requests, shown }: { requests: readonly DumpRequest[]; shown: DumpRequest | null }) {
  const moment = pinnedMoment();
  if (moment === null || requests.length === 0) return null;
  if (shown) {
    const by = moment - Date.parse(shown.asked_at);
    const word = by < 0 ? `${spanWords(-by)} after` : `${spanWords(by)} before`;
    return (
      <p class="dumps-moment">
        Asked for at {timeOfDay(Date.parse(shown.asked_at))} {zoneLabel()}, {word} the moment shown.
      </p>
    );
  }
  const first = requests[requests.length - 1];
  return (
    <p class="dumps-moment">
      None had been asked for at {timeOfDay(moment)} {zoneLabel()}.
      <button type="button" class="small" onClick={() => setQuery({ dump: String(first.id) })}>
        Show the first, of {timeOfDay(Date.parse(first.asked_at))}
      </button>
    </p>
  );
}

interface DumpsBarProps {
  source: Source;
  dumps: Answered<DumpsAnswer>;
  /** The newest live message about dumps of this incident. */
  row: DumpsRow | null;
  kind: "stacks" | "recorder";
}

export function DumpsBar({ source, dumps, row, kind }: DumpsBarProps) {
  const { requests } = dumps.value ?? { requests: [] };
  const shown = shownRequest(requests, kind);
  return (
    <div class="dumps-bar">
      {shown && <Progress request={shown} row={row} />}
      {!shown && requests.length === 0 && <p>Nobody has asked the nodes for dumps yet.</p>}
      <OfMoment requests={requests.filter((one) => one.kinds.includes(kind))} shown={shown} />
      {requests.length > 1 && <Choice requests={requests} shown={shown} />}
      {shown && shown.ranks_answered > 0 && source.startsWith("incidents/") && mayAct.value && (
        <TakeDumps source={source} request={shown.id} />
      )}
      <TakeAgain source={source} dumps={dumps} isFirst={requests.length === 0} />
    </div>
  );
}

/** Who asks when no person did. */
const ASKER: Record<string, string> = { "": "the trigger", detector: "the trigger" };

function Progress({ request, row }: { request: DumpRequest; row: DumpsRow | null }) {
  const { answered, expected } = nodesAnswered(request, row);
  return (
    <div class="dumps-progress">
      <p role="status">
        <b>
          {answered.toLocaleString("en-US")} of {count(expected, "node")} answered
        </b>
        {request.state === "open"
          ? " so far"
          : request.state === "expired" && answered < expected
            ? "; the rest did not in time"
            : ""}
      </p>
      <progress max={Math.max(1, expected)} value={answered} aria-label="Nodes that answered" />
      <p class="faint">
        asked by {ASKER[request.asked_by] ?? request.asked_by} <Ago at={request.asked_at} />
        {(request.left_out ?? 0) > 0 && `; ${count(request.left_out ?? 0, "part")} over a limit left out`}
      </p>
    </div>
  );
}

function Choice({ requests, shown }: { requests: readonly DumpRequest[]; shown: DumpRequest | null }) {
  return (
    <label class="dumps-choice">
      <span>Taken at</span>
      <select
        value={String(shown?.id ?? "")}
        onChange={(change) => setQuery({ dump: (change.target as HTMLSelectElement).value })}
      >
        {requests.map((one) => (
          <option key={one.id} value={String(one.id)}>
            {timeOfDay(Date.parse(one.asked_at))} {zoneLabel()}
          </option>
        ))}
      </select>
    </label>
  );
}

/** What came, for `python -m rca bundle` on any machine. */
function TakeDumps({ source, request }: { source: Source; request: number }) {
  const take = () =>
    takeAway(`${source}/dumps.zip?request=${request}`, `${source.replace("/", "-")}-dumps-${request}.zip`).catch(
      (error: Error) => notify(error.message, "bad"),
    );
  return (
    <button type="button" class="small" onClick={() => void take()} title="For python -m rca bundle, on any machine">
      Download (.zip)
    </button>
  );
}

function TakeAgain({ source, dumps, isFirst }: { source: Source; dumps: Answered<DumpsAnswer>; isFirst: boolean }) {
  const [isAsking, setAsking] = useState(false);
  const [refusal, setRefusal] = useState("");
  if (!dumps.value || !mayAct.value) return null;
  const { can_ask, why_not } = dumps.value;
  const ask = async () => {
    setAsking(true);
    try {
      const request = await askDumps(source);
      setQuery({ dump: null });
      setRefusal("");
      announce(`Asked ${count(request.nodes_expected, "node")} for dumps`);
    } catch (error) {
      setRefusal((error as Error).message);
    }
    setAsking(false);
    dumps.again();
  };
  return (
    <div class="take-again">
      <button type="button" class="small" disabled={isAsking || !can_ask} onClick={() => void ask()}>
        {isFirst ? "Take dumps" : "Take dumps again"}
      </button>
      {(refusal || (!can_ask && why_not)) && <p class="faint">{refusal || why_not}</p>}
    </div>
  );
}

/** Ranks of which nothing is known, with the reason: by reason, as a missing py-spy is missing on a whole node. */
export function SilentRanks({ silent, total, what }: { silent: readonly SilentRank[]; total: Total; what: string }) {
  if (silent.length === 0) return null;
  const reasons = new Map<string, SilentRank[]>();
  for (const one of silent) {
    const why = one.why || "no reason given";
    reasons.set(why, [...(reasons.get(why) ?? []), one]);
  }
  return (
    <section class="doubts silent-ranks" aria-label={`Unknown: ${what}`}>
      <h3>
        Unknown: {what} of {totalWords(total)}
      </h3>
      <ul>
        {[...reasons].map(([why, those]) => (
          <li key={why}>
            <b>{whoseWords(those)}</b> {nodesOf(those)}: {why}
          </li>
        ))}
      </ul>
      {total.n > silent.length && (
        <p class="faint">and {count(total.n - silent.length, "more rank", "more ranks")}, not listed here</p>
      )}
    </section>
  );
}

/** A process that did not say its rank has a negative one. */
function whoseWords(silent: readonly SilentRank[]): string {
  const ranks = [...new Set(silent.map(({ rank }) => rank))].filter((rank) => rank >= 0);
  if (ranks.length === 0) return "Processes of no known rank";
  const words = `${ranks.length === 1 ? "Rank" : "Ranks"} ${rankRanges(ranks)}`;
  return silent.some(({ rank }) => rank < 0) ? `${words} and processes of no known rank` : words;
}

/** Whose ranks stand nowhere below: nothing came of them, not even a reason. */
export function AwaitedNodes({ request, row }: { request: DumpRequest; row: DumpsRow | null }) {
  const n = awaitedNodes(request, row);
  if (n === 0) return null;
  return (
    <p class="awaited-nodes">
      Nodes that have not answered: <b>{n.toLocaleString("en-US")}</b>. Of their ranks nothing is known.
    </p>
  );
}

export function awaitedNodes(request: DumpRequest, row: DumpsRow | null): number {
  const { answered, expected } = nodesAnswered(request, row);
  return Math.max(0, expected - answered);
}

/** By the answer or the live message, whichever is further. */
function nodesAnswered(request: DumpRequest, row: DumpsRow | null): { answered: number; expected: number } {
  const newer = row?.request === request.id ? row : null;
  return {
    answered: Math.max(request.nodes_answered, newer?.nodes_answered ?? 0),
    expected: Math.max(request.nodes_expected, newer?.nodes_expected ?? 0),
  };
}

function nodesOf(silent: readonly SilentRank[]): string {
  const nodes = [...new Set(silent.map(({ node }) => node).filter(Boolean))];
  if (nodes.length === 0) return "";
  return `on ${nodes.length === 1 ? nodes[0] : count(nodes.length, "node")}`;
}

/** How long ago the dumps were taken, so that old stacks are not read as now. */
export function isOld(takenAt: string | null): boolean {
  return takenAt !== null && serverNow() - Date.parse(takenAt) > 60_000;
}
