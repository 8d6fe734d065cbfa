/*
 * What people do to an incident, shown at once and taken back when the server disagrees. While an act is under way its
 * buttons are disabled; when somebody else was first (409) the page takes over the server's row and says who it was.
 */

import { signal } from "@preact/signals";
import { type Act, type ActAnswer, ApiError, act, readIncident } from "../api";
import { putEntry, putIncident } from "../live/apply";
import type { IncidentRow, TimelineRow } from "../live/rows";
import type { LiveStream } from "../live/streams";
import { timeOfDay, zoneLabel } from "./clock";
import { notify, settle } from "./notices";
import { session, team } from "./team";
import { VERB } from "./words";

/** Acts under way, by incident and lane; see `isUnderWay`. */
const underWay = signal<ReadonlySet<string>>(new Set());

/** Acts that conflict with nothing: they move no state, so they send no version and show nothing beforehand. */
const BARE: readonly Act[] = ["comments", "diagnose", "review"];

/** Moves of an incident wait for each other; other acts wait for their like only. */
function laneOf(number: number, verb: Act): string {
  return `${number} ${BARE.includes(verb) ? verb : "move"}`;
}

export function isUnderWay(number: number, verb: Act = "acknowledge"): boolean {
  return underWay.value.has(laneOf(number, verb));
}

/** Streams that show the incident; every one of them gets the optimistic row and the answer. */
const holders = new Set<LiveStream>([team]);

export function holdIncident(stream: LiveStream): () => void {
  holders.add(stream);
  return () => holders.delete(stream);
}

/** Whether it was done. It shows at once; why it was refused is a notice. */
export async function actOn(row: IncidentRow, verb: Act, body: Record<string, unknown> = {}): Promise<boolean> {
  if (isUnderWay(row.number, verb)) return false;
  if (!BARE.includes(verb)) show(expected(row, verb));
  const refused = await attempt(row, verb, body);
  if (refused) notify(refused.words, refused.isMine ? "calm" : "bad", aboutAct(row.number, verb));
  return refused === null;
}

/** For a dialog, which waits for the answer: nothing shows before it, and a refusal is thrown as its sentence. */
export async function actFirst(row: IncidentRow, verb: Act, body: Record<string, unknown> = {}): Promise<void> {
  if (isUnderWay(row.number, verb)) throw new Error("Another act on this incident waits for its answer.");
  const refused = await attempt(row, verb, body);
  if (refused) throw new Error(refused.words);
}

interface Refusal {
  words: string;
  isMine: boolean;
}

async function attempt(row: IncidentRow, verb: Act, body: Record<string, unknown>): Promise<Refusal | null> {
  const lane = laneOf(row.number, verb);
  underWay.value = new Set([...underWay.value, lane]);
  try {
    const answer = await act(row.number, verb, BARE.includes(verb) ? body : { version: row.version, ...body });
    showAnswer(answer);
    settle(aboutAct(row.number, verb));
    return null;
  } catch (error) {
    return await takeBack(row, verb, error as Error);
  } finally {
    underWay.value = new Set([...underWay.value].filter((other) => other !== lane));
  }
}

/** The row as it will most likely be; its version stays, so that the server's row always wins. */
export function expected(row: IncidentRow, verb: Act): IncidentRow {
  const at = new Date().toISOString();
  const who = session.value?.name || session.value?.user || "you";
  switch (verb) {
    case "acknowledge":
      return { ...row, state: "acknowledged", acknowledged_at: at, acknowledged_by: who };
    case "unacknowledge":
    case "reopen":
      return { ...row, state: "open", acknowledged_at: null, acknowledged_by: null, resolved_at: null };
    case "resolve":
      return { ...row, state: "resolved", resolved_at: at };
    default:
      return row;
  }
}

/** Who was first, and when, in words. `timeline`: the incident's, oldest first; empty when it could not be read. */
export function whoWasFirst(now: IncidentRow, timeline: readonly TimelineRow[]): string {
  if (isMine(now)) return "You have acknowledged it already.";
  const last = timeline.findLast((entry) => MOVES.includes(entry.verb));
  if (last) return `${last.actor} ${VERB[last.verb]} it first${whenWords(last.at)}.`;
  if (now.state === "acknowledged" && now.acknowledged_by)
    return `${now.acknowledged_by} acknowledged it first${whenWords(now.acknowledged_at)}.`;
  if (now.state === "resolved") return `Somebody resolved it first${whenWords(now.resolved_at)}.`;
  return "It changed in the meantime; this is how it is now.";
}

const MOVES: readonly string[] = ["acknowledged", "resolved", "reopened"];

function whenWords(at: string | null): string {
  return at ? `, at ${timeOfDay(Date.parse(at))} ${zoneLabel()}` : "";
}

/** What people did to it; nothing when that cannot be read: who was first is then said as far as its row says. */
async function timelineOf(number: number): Promise<TimelineRow[]> {
  return readIncident(number).then(
    (answer) => answer.timeline,
    () => [],
  );
}

const aboutAct = (number: number, verb: Act) => `${number} ${verb}`;

/** Whether it is ours: then a refusal says only that we acted twice, from two windows perhaps. */
export function isMine(row: IncidentRow): boolean {
  const me = session.value;
  return row.state === "acknowledged" && me !== null && [me.user, me.name].includes(row.acknowledged_by ?? "");
}

async function takeBack(row: IncidentRow, verb: Act, error: Error): Promise<Refusal> {
  const told = error instanceof ApiError && error.status === 409 ? (error.answer.incident as IncidentRow) : null;
  const current = told?.number === row.number ? told : null; // of another one, as the root of an attachment, it says itself
  if (!BARE.includes(verb)) show(current ?? row);
  const words = current ? whoWasFirst(current, await timelineOf(row.number)) : error.message;
  return { words, isMine: current !== null && isMine(current) };
}

function showAnswer({ incident, entry }: ActAnswer): void {
  show(incident);
  for (const stream of holders) {
    const snapshot = stream.snapshot.value;
    if (snapshot && snapshot.stream.name === `incident:${incident.number}` && entry) {
      stream.snapshot.value = { ...snapshot, timeline: putEntry(snapshot.timeline, entry as TimelineRow) };
    }
  }
}

/** Shows a row wherever its incident is shown, unless something newer is there. */
export function show(row: IncidentRow): void {
  for (const stream of holders) {
    const snapshot = stream.snapshot.value;
    if (snapshot?.incidents.some((one) => one.number === row.number)) {
      stream.snapshot.value = { ...snapshot, incidents: putIncident(snapshot.incidents, row) };
    }
  }
}
