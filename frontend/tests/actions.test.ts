/* What is said to somebody whose act came second. */

import { afterEach, describe, expect, it } from "vitest";
import type { Session } from "../src/api";
import { isMine, whoWasFirst } from "../src/state/actions";
import { session } from "../src/state/team";
import { makeIncident } from "./fixtures";

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
    expect(whoWasFirst(ACKNOWLEDGED)).toBe("admin acknowledged it first.");
  });

  it("does not name you to yourself", () => {
    signIn("admin");
    expect(isMine(ACKNOWLEDGED)).toBe(true);
    expect(whoWasFirst(ACKNOWLEDGED)).toBe("You have acknowledged it already.");
    expect(whoWasFirst({ ...ACKNOWLEDGED, state: "resolved" })).toBe("It has been resolved in the meantime.");
  });
});
