/* An answer that broke off, or is none of ours, is a failure: nothing is ever drawn from half of one. */

import { afterEach, expect, it, vi } from "vitest";
import { act, readNow } from "../src/api";

afterEach(() => vi.unstubAllGlobals());

const answers = (body: string, status = 200) => vi.stubGlobal("fetch", async () => new Response(body, { status }));

it("is a failure where the server died amid it, though its status was good", async () => {
  answers('{"stream": {"name": "team:1", "epoch": "a", "off');
  await expect(readNow()).rejects.toThrow("The server cannot be reached. It is asked again by itself.");
  await expect(act(1, "resolve", {})).rejects.toThrow("Whether this was done is not known");
});

it("is a failure where something before the server answered with a page of its own", async () => {
  answers("<html>Please sign in to this network</html>");
  await expect(readNow()).rejects.toMatchObject({ status: 0, code: "unreachable" });
  answers("<html>Bad gateway</html>", 502);
  await expect(readNow()).rejects.toThrow("The server answered 502.");
});
