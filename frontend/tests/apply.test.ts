import { describe, expect, it } from "vitest";
import { applyMessage, type Snapshot } from "../src/live/apply";
import { BadFrame, decodeFrame, decodeMessage } from "../src/live/decode";
import type { LiveMessage } from "../src/live/rows";
import { transcript, transcripts } from "./golden";

const replay = (snapshot: Snapshot, messages: LiveMessage[]) =>
  messages.reduce((at, message) => applyMessage(at, message).snapshot, snapshot);

describe("snapshot and messages", () => {
  it.each(transcripts)("%s ends where the server says", (_, { snapshot, messages, ends }) => {
    expect(replay(snapshot, messages)).toEqual(ends);
  });

  it.each(transcripts)("%s replayed twice changes nothing more", (_, { snapshot, messages, ends }) => {
    expect(replay(replay(snapshot, messages), messages)).toEqual(ends);
  });

  it.each(transcripts)("%s does not touch the snapshot it began with", (_, { snapshot, messages }) => {
    const before = structuredClone(snapshot);
    replay(snapshot, messages);
    expect(snapshot).toEqual(before);
  });

  it("calls a skipped offset a gap and applies nothing", () => {
    const { snapshot, messages } = transcript("team-stream");
    const skipped = applyMessage(snapshot, messages[2]);
    expect(skipped.outcome).toBe("gap");
    expect(skipped.snapshot).toBe(snapshot);
  });

  it("calls another epoch a gap, whatever its offset", () => {
    const { snapshot, messages } = transcript("team-stream");
    expect(applyMessage(snapshot, { ...messages[0], epoch: "other" }).outcome).toBe("gap");
  });

  it("ignores other streams", () => {
    const { snapshot } = transcript("team-stream");
    const [foreign] = transcript("incident-stream").messages;
    expect(applyMessage(snapshot, foreign).outcome).toBe("ignored");
  });

  it("never lets an older version replace a newer one", () => {
    const { ends, messages } = transcript("team-stream");
    const late = { ...messages[3], offset: ends.stream.offset + 1 } as LiveMessage;
    const { snapshot, outcome } = applyMessage(ends, late);
    expect(outcome).toBe("applied");
    expect(snapshot.incidents[0].version).toBe(3);
  });
});

describe("frames", () => {
  const text = () => structuredClone(transcript("team-stream").messages[1]) as unknown as Record<string, unknown>;

  it("reads every message of the transcripts", () => {
    for (const [, { messages }] of transcripts) {
      for (const message of messages) expect(decodeMessage(JSON.stringify(message))).toEqual(message);
    }
  });

  it.each([
    ["another protocol", { ...text(), v: 2 }],
    ["an unknown type", { ...text(), type: "incident.vanished" }],
    ["an unknown field", { ...text(), extra: 1 }],
    ["a missing field", { ...text(), offset: undefined }],
    ["a row of another kind", { ...text(), row: transcript("incident-stream").messages[1].row }],
    ["a row that is nothing", { ...text(), row: null }],
  ])("refuses %s", (_, raw) => {
    expect(() => decodeMessage(JSON.stringify(raw))).toThrow(BadFrame);
  });

  it.each(["", "[]", "7", "not json"])("refuses %j", (raw) => {
    expect(() => decodeFrame(raw)).toThrow(BadFrame);
  });

  it("tells control frames apart", () => {
    const subscribed = { subscribed: "team:1", epoch: "e", offset: 4, recovered: false };
    expect(decodeFrame(JSON.stringify(subscribed))).toMatchObject({ kind: "subscribed", recovered: false, offset: 4 });
    expect(decodeFrame('{"resync":"team:1","reason":"trimmed"}').kind).toBe("resync");
    expect(decodeFrame('{"refused":"team:9","reason":"none"}').kind).toBe("refused");
    expect(decodeFrame('{"beat":3,"at":"2026-11-21T13:02:11.200Z"}')).toEqual({ kind: "beat", offsets: {} });
    const odd = '{"beat":3,"at":"","offsets":{"team:1":7,"team:2":"8","team:3":1.5}}';
    expect(decodeFrame(odd)).toEqual({ kind: "beat", offsets: { "team:1": 7 } });
  });
});
