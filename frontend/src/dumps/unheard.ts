/*
 * Of whom nothing is known, and what may be said of the others when the Flight Recorder names nobody. That all is well is
 * said only of a job every rank of which was read. Pure.
 */

import { count } from "../state/words";
import { membersWithout, type RecordedRow, type Standing } from "./recorded";
import type { DumpRequest, RecorderAnswer, SilentRank } from "./shapes";

/** How many, and whether there may be more than were counted. */
export interface Total {
  n: number;
  isLeast: boolean;
}

/** The server lists at most so many of those it counted; one rank may be listed once for each of its processes. */
export function silentTotal(listed: readonly SilentRank[], counted: number | undefined): Total {
  const isAll = counted === undefined || counted <= listed.length;
  return { n: isAll ? silentRanks(listed).size : counted, isLeast: false };
}

/** Of one kind of dump: where the list of both kinds was cut, nobody can say how many of the rest are of this one. */
export function silentOfKind(request: DumpRequest, kind: string): { silent: SilentRank[]; total: Total } {
  const silent = request.silent.filter((one) => one.kind === kind);
  if (request.kinds.length === 1) return { silent, total: silentTotal(silent, request.silent_count) };
  return { silent, total: { n: silentRanks(silent).size, isLeast: request.silent_count > request.silent.length } };
}

/** Processes whose rank nobody knows have a negative one: each counts as somebody else. */
function silentRanks(silent: readonly SilentRank[]): Set<string> {
  return new Set(silent.map(({ rank, node }) => (rank < 0 ? `${rank} ${node}` : String(rank))));
}

/** How the reason begins why a process has no Python stack: it is none (nccl_instrument/dumps.py). */
const NO_PYTHON = "it is no Python process";

/** Whether every rank that gave nothing is known to run no Python: then nothing is missing, there is nothing to take. */
export function isWithoutPython({ silent, silent_count, ranks_answered, state }: DumpRequest): boolean {
  const stacks = silent.filter(({ kind }) => kind === "stacks");
  const ranks = silentRanks(stacks.filter(({ why }) => why.startsWith(NO_PYTHON)));
  if (ranks.size === 0 || ranks_answered > 0 || state === "open" || silent_count > silent.length) return false;
  return [...silentRanks(silent)].every((rank) => ranks.has(rank));
}

export function totalWords({ n, isLeast }: Total): string {
  return `${isLeast ? "at least " : ""}${count(n, "rank")}`;
}

/** What is said when the Flight Recorder names nobody; awaited: nodes that have not answered. */
export function nobodyWords(recorder: RecorderAnswer, rows: readonly RecordedRow[], awaited: number): string {
  const silent = new Set(recorder.silent.map(({ rank }) => rank));
  const read = new Set(recorder.groups.flatMap((group) => group.ranks.map(({ rank }) => rank)));
  for (const rank of silent) read.delete(rank);
  const missing = missingWords(recorder, read, awaited);
  const not = missing && ` Nothing is known of ${missing}.`;
  if (read.size === 0) return `The Flight Recorder names nobody: no rank was read.${not}`;
  if (rows.some(({ standing }) => APART.includes(standing)))
    return `The Flight Recorder names nobody, though ranks differ in the groups below.${not}`;
  if (!not) return "The Flight Recorder names nobody: no rank is behind, and all did the same ops.";
  const whose = (recorder.left_out?.rows ?? 0) > 0 ? "the ranks read" : `the ${count(read.size, "rank")} read`;
  return `The Flight Recorder names nobody: of ${whose}, none is behind, and they did the same ops.${not}`;
}

const APART: readonly Standing[] = ["behind", "other", "waits"];

function missingWords(recorder: RecorderAnswer, read: ReadonlySet<number>, awaited: number): string {
  const unheard = recorder.groups.flatMap(membersWithout).filter((rank) => !read.has(rank));
  const told = silentRanks(recorder.silent);
  for (const rank of unheard) told.add(String(rank));
  const unlisted = Math.max(0, (recorder.silent_count ?? 0) - recorder.silent.length);
  const ranks = told.size + unlisted;
  const refused = refusedTotal(recorder);
  return [
    ranks > 0 && count(ranks, "rank"),
    refused > 0 && `what ${count(refused, "dump")} that could not be read would say`,
    // silent_count has the ranks of such nodes in it
    awaited > 0 &&
      !recorder.silent_count &&
      `the ranks of ${count(awaited, "node")} that ${awaited === 1 ? "has" : "have"} not answered`,
  ]
    .filter(Boolean)
    .join(", nor of ");
}

export function refusedTotal({ refused, refused_count }: RecorderAnswer): number {
  return Math.max(refused_count ?? 0, Object.keys(refused).length);
}
