/* Raw JSON keeps its digits, and what the browser calls "Failed to fetch" is said in words. */

import { afterEach, describe, expect, it, vi } from "vitest";
import { ApiError, act, readDiagnosisText, readNow, takeAway } from "../src/api";
import { indented } from "../src/incident/raw";

afterEach(() => vi.unstubAllGlobals());

describe("indented", () => {
  it("keeps every digit of a number that JavaScript would round", () => {
    const raw = '{"at_ns":1790000000123456789,"comm_id":"18446744073709551615","x":-1.50e3}';
    expect(indented(raw)).toBe(
      '{\n  "at_ns": 1790000000123456789,\n  "comm_id": "18446744073709551615",\n  "x": -1.50e3\n}',
    );
  });

  it("reads the same as JSON.stringify where nothing is lost", () => {
    const value = { a: [], b: {}, c: [1, { d: 'quoted " {[,:]} \\ ü' }, [null, true]], e: "" };
    expect(indented(JSON.stringify(value))).toBe(JSON.stringify(value, null, 2));
  });
});

describe("a server that is away", () => {
  const away = (name = "TypeError") =>
    vi.stubGlobal("fetch", () => Promise.reject(Object.assign(new Error("Failed to fetch"), { name })));

  it("is said in words when something is read", async () => {
    away();
    await expect(readNow()).rejects.toThrow("The server cannot be reached. It is asked again by itself.");
    away("TimeoutError");
    await expect(readDiagnosisText(1, 1)).rejects.toThrow("The server did not answer within 20 s.");
    await expect(readNow()).rejects.toBeInstanceOf(ApiError);
  });

  it("leaves open whether an act was done, and says how to find out", async () => {
    away();
    await expect(act(1, "acknowledge", {})).rejects.toThrow(/cannot be reached. Whether this was done is not known/);
  });

  it("says why a file was refused", async () => {
    vi.stubGlobal("fetch", async () => Response.json({ error: "Too many ranks.", code: "bad_act" }, { status: 400 }));
    await expect(takeAway("incidents/1/window", "w.npz")).rejects.toThrow("Too many ranks.");
  });
});
