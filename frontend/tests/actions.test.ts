/* What is said to somebody whose act came second. */

import { afterEach, describe, expect, it } from "vitest";
import type { Session } from "../src/api";
import { isMine, whoWasFirst } from "../src/state/actions";
import { session } from "../src/state/team";
import { makeIncident } from "./fixtures";

const AT = "2026-11-22T12:00:05Z";
const ACKNOWLEDGED = makeIncident({ state: "acknowledged", acknowledged_by: "admin" });

function signIn(user: string): void {
  session.value = { user, name: user, role: "responder", roles: {}, csrf: "", server_at: "", version: "", demo: false };
}

afterEach(() => {
  session.value = null as Session | null;
});

describe("an act that came second", () => {
  it("names who was first", () => {
    signIn("rita");
    expect(isMine(ACKNOWLEDGED)).toBe(false);
    expect(whoWasFirst({ ...ACKNOWLEDGED, acknowledged_at: AT }, [])).toBe(
      "admin acknowledged it first, at 12:00:05 UTC.",
    );
  });

  it("does not name you to yourself", () => {
    signIn("admin");
    expect(isMine(ACKNOWLEDGED)).toBe(true);
    expect(whoWasFirst(ACKNOWLEDGED, [])).toBe("You have acknowledged it already.");
  });

  it("names who resolved it, and when, from its timeline", () => {
    signIn("rita");
    const resolved = makeIncident({ state: "resolved", resolved_at: AT });
    const entry = { id: 2, incident: 1, at: AT, actor: "olaf", actor_kind: "user", before: "open", note: "" };
    const timeline = [
      { ...entry, id: 1, actor: "rita", verb: "acknowledged", after: "acknowledged" },
      { ...entry, verb: "resolved", after: "resolved" },
      { ...entry, id: 3, actor: "rita", verb: "commented", after: "" },
    ];
    expect(whoWasFirst(resolved, timeline)).toBe("olaf resolved it first, at 12:00:05 UTC.");
    expect(whoWasFirst(resolved, [])).toBe("Somebody resolved it first, at 12:00:05 UTC.");
  });
});
