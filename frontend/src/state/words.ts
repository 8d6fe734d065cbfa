/*
 * Codes of the API in words. One place, so that a page, a tooltip and a table say the same thing the same way.
 */

export const SYMPTOM: Record<string, string> = {
  failure: "Hang",
  straggler: "Straggler",
  idle: "Idle",
  silence: "Silence",
  external: "Reported by hand",
};

export const COMPONENT: Record<string, string> = {
  nic: "NIC",
  network: "Network",
  copy: "GPU copy",
  gpu: "GPU",
  node: "Node",
  proxy: "NCCL proxy thread",
  process: "Process",
  software: "Training code",
  unknown: "Unknown component",
};

export const FAULT_KIND: Record<string, string> = {
  communication_fail_stop: "communication stopped",
  communication_fail_slow: "communication slowed down",
  computation_fail_stop: "computation stopped",
  computation_fail_slow: "computation slowed down",
  mismatch: "ranks called different ops",
  deadlock: "ranks wait for each other in a circle",
  group_anomaly: "a whole group is off",
  silence: "nothing is heard",
  unknown: "kind unknown",
};

/** The same of a hang: what is slow enough to stop the job has not "slowed down". */
export const STALLED: Record<string, string> = {
  communication_fail_slow: "communication stands still",
  computation_fail_slow: "computation stands still",
};

/** Names as people sort them: pp_2 before pp_10. */
export function inOrder(names: readonly string[]): string[] {
  return [...names].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
}

/** What a finding is about; a rack's name says nothing without the word. */
export function subjectWords(subject: { kind: string; name: string }): string {
  return subject.kind === "rack" ? `rack ${subject.name}` : subject.name;
}

export function faultWords(kind: string, symptom: string): string {
  return (symptom === "failure" && STALLED[kind]) || worded(FAULT_KIND, kind);
}

/** The layers that stacks and Flight Recorder bound, from above the collectives to below them. */
export const LAYER: Record<string, string> = {
  "data loader": "The training code waits for its input; what the collectives show follows from that.",
  checkpoint: "The training code saves or loads a checkpoint; what the collectives show follows from that.",
  "out of sync": "Ranks have not called the same ops: one is behind, left an op out, or called another.",
  collective: "All ranks are in the op; it does not get on inside.",
  below: "Below NCCL: a process or its GPU does not run, or no source shows a difference between ranks.",
};

export const GRADE: Record<string, { word: string; meaning: string; level: number }> = {
  strong: { word: "Strong", meaning: "seen directly at the culprit", level: 3 },
  moderate: { word: "Moderate", meaning: "inferred from its peers", level: 2 },
  weak: { word: "Weak", meaning: "the best of several explanations", level: 1 },
};

export const RANK_STATE: Record<string, { word: string; meaning: string }> = {
  ok: { word: "Healthy", meaning: "makes progress" },
  waiting: { word: "Waiting", meaning: "cannot go on before another rank does" },
  culprit: { word: "Culprit", meaning: "where it started" },
  suspect: { word: "Suspect", meaning: "may be where it started: the evidence does not tell which of these it is" },
  silent: { word: "Silent", meaning: "sends nothing while others do" },
  dead: { word: "Dead", meaning: "its process ended" },
  unknown: { word: "Unknown", meaning: "never seen or too old to say" },
  not_visible: { word: "Not visible", meaning: "works inside the node, where no network flow shows progress" },
};

export const JOB_STATE: Record<string, string> = {
  running: "Running",
  stuck: "Stuck",
  slow: "Slow",
  silent: "Silent",
  catching_up: "Catching up",
  idle: "Between ops",
  ended: "Ended",
  unknown: "Unknown",
};

export const NODE_STATE: Record<string, string> = {
  reporting: "Reporting",
  silent: "Silent",
  catching_up: "Catching up",
  unheard: "Not heard: ingest away",
  refused: "Refused: the disk is short",
  ended: "Ended",
};

export const FLOW_STATE: Record<string, { word: string; formula: string }> = {
  not_started: { word: "Not started", formula: "①=②=③=0" },
  not_transmitted: { word: "Ready but not transmitted", formula: "①>②" },
  not_delivered: { word: "Transmitted but not delivered", formula: "②>③" },
  gpu_not_ready: { word: "GPU not ready with the next chunk", formula: "①=②=③>0" },
};

export const VERB: Record<string, string> = {
  opened: "opened the incident",
  acknowledged: "acknowledged",
  unacknowledged: "took the acknowledgement back",
  resolved: "resolved",
  reopened: "reopened",
  commented: "commented",
  diagnosed: "named a cause",
  "named nobody": "looked for the cause and named nobody",
  revised: "revised the diagnosis",
  condition_changed: "saw the condition change",
  "asked again": "asked for another diagnosis",
  confirmed: "came to the same diagnosis",
  reported: "reported it by hand",
  "asked for dumps": "asked the nodes for dumps",
  pages: "let it page people",
  "diagnosis failed": "could not diagnose",
  attached: "saw another symptom",
  "got worse": "saw graver trouble begin",
  "attached to": "attached it to",
  "took in": "attached to it",
  detached: "detached it from",
  "let go": "detached from it",
  assigned: "assigned it to",
  unassigned: "took it from",
  silenced: "silenced it",
  unsilenced: "made it loud again",
  reviewed: "said what it was",
  "ticket opened": "opened a ticket",
  "closed elsewhere": "says that it was closed there",
  "resolved elsewhere": "says that it was resolved there",
  "reopened elsewhere": "says that it was reopened there",
  "commented elsewhere": "has a comment",
  "gone elsewhere": "has no such ticket any more",
  "moved elsewhere": "says that it was moved",
};

/** Verbs whose object is a person or an incident, and stands in `after` or `before`. */
export const VERB_OBJECT: Record<string, "after" | "before"> = {
  assigned: "after",
  unassigned: "before",
  "attached to": "after",
  "took in": "after",
  detached: "before",
  "let go": "after",
};

/** What people found out afterwards. */
export const REVIEW: Record<string, string> = { real: "real", noise: "noise", false: "false alarm" };

/** What agents counted as lost or odd: the kinds of nccl_instrument/tables.py. */
export const LOSS: Record<string, [one: string, many: string]> = {
  spool_batches: ["batch dropped from a full spool", "batches dropped from a full spool"],
  ring_records: ["record overwritten before it was read", "records overwritten before they were read"],
  rows_over_limit: ["row beyond an agent's limit", "rows beyond an agent's limit"],
  table_full: ["op or flow beyond the plugin's tables", "ops or flows beyond the plugin's tables"],
  refused_batches: ["batch given up after it was refused", "batches given up after they were refused"],
  segments_unreadable: ["segment that could not be read", "segments that could not be read"],
  torn_rows: ["row read while it was written", "rows read while they were written"],
  bad_handles: ["call with a bad handle", "calls with a bad handle"],
  unknown_calls: ["call of an unknown kind", "calls of an unknown kind"],
  clock_steps: ["step of the clock", "steps of the clock"],
  late_sweeps: ["late sample", "late samples"],
  unnamed_processes: ["process without a job", "processes without a job"],
  dumps_lost: ["request for dumps that could not be served", "requests for dumps that could not be served"],
  stage_records: ["training step overwritten before it was read", "training steps overwritten before they were read"],
  unowned_bytes: ["byte sent for an unknown communicator", "bytes sent for unknown communicators"],
  unfinished_ops: ["op whose end was not seen", "ops whose end was not seen"],
};

/** What retention let go of: the kinds of ingest/traces/let_go.py. Evidence that aged is as was asked; cut or hours are losses. */
export const LET_GO: Record<string, [one: string, many: string]> = {
  windows: [
    "pinned window of an incident resolved longer ago than evidence is kept",
    "pinned windows of incidents resolved longer ago than evidence is kept",
  ],
  windows_cut: ["pinned window longer than a day was cut", "pinned windows longer than a day were cut"],
  dumps: ["set of dumps older than they are kept", "sets of dumps older than they are kept"],
  dumps_refused: [
    "request for dumps not made, since incidents' evidence takes all the room for dumps",
    "requests for dumps not made, since incidents' evidence takes all the room for dumps",
  ],
  hours: [
    "hour of traces dropped before all of it was saved or summed up",
    "hours of traces dropped before all of it was saved or summed up",
  ],
};
export const LET_GO_LOSES = ["windows_cut", "dumps_refused", "hours"];

/** Losses after which nothing is missing from a window: odd, counted, got over. */
export const ONLY_ODD = [
  "torn_rows",
  "bad_handles",
  "unknown_calls",
  "clock_steps",
  "late_sweeps",
  "unnamed_processes",
  "dumps_lost",
  "unowned_bytes",
];

export function lossWords(kind: string, n: number): string {
  const [one, many] = LOSS[kind] ?? [readable(kind).toLowerCase(), readable(kind).toLowerCase()];
  return count(n, one, many);
}

/** Why ingest refused requests, by status; docs/ingest.md says more. */
export const REFUSED: Record<string, string> = {
  "401": "no valid agent token",
  "408": "too slow",
  "411": "no length given",
  "413": "too large",
  "429": "busy, or too many wrong tokens: agents send again",
  "500": "could not be stored: see ingest's log",
  "503": "the database was away: agents send again",
  "507": "the disk is short: agents send again",
};

/** A code nobody has worded yet, made readable: "port_state" → "Port state". */
export function worded(table: Record<string, string>, code: string): string {
  return table[code] ?? readable(code);
}

export function readable(code: string): string {
  const text = code.replaceAll("_", " ");
  return text.charAt(0).toUpperCase() + text.slice(1);
}

const UNITS: Record<string, string> = { s: "s", ms: "ms", ns: "ns", us: "µs", max: "at most", min: "at least" };

/** A measured number whose unit is in its name: "delta_s", 2 → "delta", "2 s". */
/** Numbers that have a letter in the papers. */
const LETTER: Record<string, string> = { delta: "Δ" };

export function numberWords(name: string, value: number): [string, string] {
  const isLongSpan = /(?<!_per)_s$/.test(name) && Math.abs(value) >= 1;
  const digits = isLongSpan ? { maximumFractionDigits: 1 } : { maximumSignificantDigits: 6 };
  const number = value.toLocaleString("en-US", digits);
  const parts = name.split("_");
  const perSecond = name.endsWith("_per_s");
  const unit = perSecond ? "/s" : (UNITS[parts.at(-1) ?? ""] ?? "");
  if (!unit) return [parts.join(" "), number];
  const words = parts.slice(0, perSecond ? -2 : -1).join(" ");
  const label = LETTER[words] ?? words;
  return [label, unit.startsWith("at ") ? `${unit} ${number}` : `${number}${perSecond ? "" : " "}${unit}`];
}

export function count(n: number, one: string, many = `${one}s`): string {
  return `${n.toLocaleString("en-US")} ${n === 1 ? one : many}`;
}

/** Ranks as people write them: "0–3, 5, 8–9", at most `max` pieces, then how many more. */
export function rankRanges(ranks: readonly number[], max = 12): string {
  const sorted = [...new Set(ranks)].sort((a, b) => a - b);
  const ranges: [number, number][] = [];
  for (const rank of sorted) {
    const last = ranges.at(-1);
    if (last && rank === last[1] + 1) last[1] = rank;
    else ranges.push([rank, rank]);
  }
  const shown = ranges.slice(0, max);
  const hidden = sorted.length - shown.reduce((n, [from, to]) => n + to - from + 1, 0);
  const text = shown.map(([from, to]) => (from === to ? `${from}` : `${from}–${to}`)).join(", ");
  return hidden > 0 ? `${text} and ${hidden.toLocaleString("en-US")} more` : text;
}

/** "rank 3", "ranks 3, 7", of a tie "one of ranks 4–5"; "" where there is nobody to name. */
export function suspectWords(
  { culprits, suspects, n_suspects }: { culprits: readonly number[]; suspects: readonly number[]; n_suspects: number },
  max: number,
): string {
  if (culprits.length > 0) return `rank${culprits.length > 1 ? "s" : ""} ${rankRanges(culprits, max)}`;
  if (suspects.length === 0) return "";
  const more =
    n_suspects > suspects.length ? ` and ${(n_suspects - suspects.length).toLocaleString("en-US")} more` : "";
  return `one of ranks ${rankRanges(suspects, max)}${more}`;
}
