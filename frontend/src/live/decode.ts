/*
 * Frames of the socket, told apart and checked. A live message with an unknown type or a wrong set of fields is
 * refused, as live.py refuses it: drawing half a row would show something nobody said.
 */

import { FIELDS, type LiveMessage, PROTOCOL } from "./rows";

export class BadFrame extends Error {}

export type Frame =
  | { kind: "message"; message: LiveMessage }
  | { kind: "subscribed"; stream: string; epoch: string; offset: number; recovered: boolean }
  | { kind: "resync"; stream: string; reason: string }
  | { kind: "refused"; stream: string; reason: string }
  | { kind: "presence"; stream: string; people: string[] }
  | { kind: "beat"; offsets: Readonly<Record<string, number>> }
  | { kind: "unknown" };

const ENVELOPE = ["v", "stream", "epoch", "offset", "at", "type", "row"];

type Raw = Record<string, unknown>;

export function decodeFrame(text: string): Frame {
  const raw = parse(text);
  if ("v" in raw) return { kind: "message", message: checkMessage(raw) };
  if (typeof raw.subscribed === "string") {
    return {
      kind: "subscribed",
      stream: raw.subscribed,
      epoch: String(raw.epoch),
      offset: Number(raw.offset),
      recovered: raw.recovered === true,
    };
  }
  if (typeof raw.resync === "string") return { kind: "resync", stream: raw.resync, reason: String(raw.reason ?? "") };
  if (typeof raw.refused === "string")
    return { kind: "refused", stream: raw.refused, reason: String(raw.reason ?? "") };
  if (typeof raw.presence === "string" && Array.isArray(raw.people))
    return { kind: "presence", stream: raw.presence, people: raw.people.map(String) };
  if ("beat" in raw || "pong" in raw) return { kind: "beat", offsets: offsetsOf(raw.offsets) };
  return { kind: "unknown" };
}

/** Stream → how far the page should be; what is no whole number says nothing. */
function offsetsOf(said: unknown): Record<string, number> {
  const pairs = typeof said === "object" && said !== null ? Object.entries(said) : [];
  return Object.fromEntries(pairs.filter(([, offset]) => Number.isInteger(offset)));
}

export function decodeMessage(text: string): LiveMessage {
  return checkMessage(parse(text));
}

function parse(text: string): Raw {
  let raw: unknown;
  try {
    raw = JSON.parse(text);
  } catch {
    throw new BadFrame("not JSON");
  }
  if (typeof raw !== "object" || raw === null || Array.isArray(raw)) throw new BadFrame("not an object");
  return raw as Raw;
}

function checkMessage(raw: Raw): LiveMessage {
  if (raw.v !== PROTOCOL) throw new BadFrame(`protocol ${String(raw.v)}, expected ${PROTOCOL}`);
  checkFields("live message", raw, ENVELOPE);
  const fields = FIELDS[raw.type as keyof typeof FIELDS];
  if (!fields) throw new BadFrame(`unknown live message type ${String(raw.type)}`);
  if (!Number.isInteger(raw.offset)) throw new BadFrame("offset is not a whole number");
  checkFields(String(raw.type), raw.row as Raw, fields);
  return raw as unknown as LiveMessage;
}

function checkFields(what: string, raw: Raw | null | undefined, names: string[]): void {
  if (typeof raw !== "object" || raw === null) throw new BadFrame(`${what}: no fields`);
  const odd = [...names.filter((name) => !(name in raw)), ...Object.keys(raw).filter((name) => !names.includes(name))];
  if (odd.length > 0) throw new BadFrame(`${what}: fields ${odd.sort().join(", ")}`);
}
