/*
 * A finding's parts made readable: which readings of Table 4 its verdict agrees with, the counters of a flow's two
 * ends, and the commands within its advice.
 */

import type { TimelineRow } from "../live/rows";
import type { Condition, Evidence, Finding } from "../types";

/** Words of a cause and the components they speak of. Causes without such words blame a side only. */
const SPEAKS_OF: [RegExp, string[]][] = [
  [/\bNIC\b|\bRDMA\b|\blink\b|network issue/, ["nic", "network"]],
  [/\bPCIe\b/, ["copy"]],
  [/\bGPU issue\b/, ["gpu", "copy"]],
  [/kernel has not started/, ["gpu", "software", "process", "proxy"]],
  [/\bproxy\b/, ["proxy", "process"]],
];

/** Whether the side and the component a condition blames are those of the finding. */
export function agrees(condition: Condition, finding: Finding): boolean {
  const isLocal = condition.verdict === "local";
  const blamed = isLocal ? condition.rank : condition.peer_rank;
  const suspects = [...finding.culprits, ...finding.subject.ranks, ...finding.tied.flatMap((one) => one.ranks)];
  if (suspects.length > 0 && !suspects.includes(blamed)) return false;
  const cause = isLocal ? condition.local_cause : condition.remote_cause;
  const components = SPEAKS_OF.filter(([words]) => words.test(cause)).flatMap(([, names]) => names);
  return components.length === 0 || finding.component === "unknown" || components.includes(finding.component);
}

export interface EndReading {
  who: string;
  counters: [name: string, value: string][];
  /** Why there are no counters of this end. */
  unseen: string;
}

export interface FlowCounters {
  flow: string;
  ends: [EndReading, EndReading];
  total: string;
}

const FLOW = /^(.*), rank (\d+) to (\d+): ([a-z ]+) \| ([a-z ]+)$/;
const COUNTERS = /^(.+) \| (.+) of (\d+)$/;

/** Counters of both ends of a flow; null when the measurement is another. */
export function flowCounters({ what, value }: Evidence): FlowCounters | null {
  const [, flow, sender, receiver, sent, taken] = FLOW.exec(what) ?? [];
  const [, atSender, atReceiver, total] = COUNTERS.exec(String(value)) ?? [];
  if (flow === undefined || total === undefined) return null;
  return {
    flow: `${flow}, rank ${sender} → ${receiver}`,
    ends: [
      endReading(`rank ${sender} sends`, sent, atSender),
      endReading(`rank ${receiver} receives`, taken, atReceiver),
    ],
    total,
  };
}

function endReading(who: string, names: string, values: string): EndReading {
  const [words, numbers] = [names.split(" "), values.split(" ")];
  const seen = numbers.length === words.length && numbers.every((one) => /^\d+$/.test(one));
  return seen
    ? { who, counters: words.map((word, n) => [word, numbers[n]]), unseen: "" }
    : { who, counters: [], unseen: values };
}

export interface AdvicePiece {
  text: string;
  isCommand: boolean;
}

const FULL_STOP = /^\s*\.\s*$/;

/** Lines of advice, each in pieces: words, and commands that stood in backticks. A full stop alone after a command is dropped. */
export function adviceLines(text: string): AdvicePiece[][] {
  return text
    .split("\n")
    .filter((line) => line.trim())
    .map((line) =>
      line
        .split("`")
        .map((piece, n) => ({ text: piece, isCommand: n % 2 === 1 }))
        .filter((piece, n) => piece.text && !(n > 0 && !piece.isCommand && FULL_STOP.test(piece.text))),
    );
}

export type Stance = "agrees" | "differs" | "missing" | "says";

/** A source's sentence as a mark and words: of who agrees the source is enough, the verdict has said the rest. */
export interface StanceWords {
  stance: Stance;
  words: string;
}

const STANCES: Record<string, Stance> = { "same culprit": "agrees", "agrees in part": "agrees", disagrees: "differs" };

/**
 * How a source's sentence (rca/dumps/fusion.py) stands to the verdict; words that are not known stay as they are. What headline
 * or list of missing things say anyway is not said again.
 */
export function stanceOf(sentence: string, headline: string, missing: readonly string[]): StanceWords {
  const words = sentence.replace(/\.$/, "");
  const source = words.split(/[:,]/, 1)[0];
  if (sentence.startsWith("No ")) {
    const isTold = missing.some((one) => one.startsWith(`${source} of `));
    return { stance: "missing", words: isTold ? source : words };
  }
  if (words === `${source}: ${headline.replace(/\.$/, "")}`) return { stance: "says", words: `${source}: says so` };
  const said = /^[^:,]+, ([^:]+): /.exec(sentence)?.[1] ?? "";
  const stance = STANCES[said] ?? "says";
  return { stance, words: said === "same culprit" ? `${source}: same culprit` : words };
}

/** Verbs of the detector that say what it makes of the cause, in words; "": the note says it. */
const ANSWERS: Record<string, string> = {
  confirmed: "",
  revised: "Diagnosed again: another answer.",
  diagnosed: "Diagnosed again: a cause is named.",
  "named nobody": "Diagnosed again: nobody stands out.",
  "diagnosis failed": "It could not be diagnosed again.",
};

/** What became of the newest diagnosis that somebody asked for, and when it was said; null once there is a newer one. */
export function answerToAsked(timeline: readonly TimelineRow[]): { words: string; at: string } | null {
  const told = timeline.filter(({ verb }) => verb === "asked again" || verb in ANSWERS);
  const [asked, said] = told.slice(-2);
  if (asked?.verb !== "asked again" || !said || !(said.verb in ANSWERS)) return null;
  return { words: ANSWERS[said.verb] || said.note, at: said.at };
}
