/* Golden transcripts of the live streams; the server's test decodes the same files. */

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Snapshot } from "../src/live/apply";
import type { LiveMessage } from "../src/live/rows";

export interface Transcript {
  about: string;
  snapshot: Snapshot;
  messages: LiveMessage[];
  ends: Snapshot;
}

const FOLDER = join(process.cwd(), "..", "tests", "golden", "live");

export const transcripts: [string, Transcript][] = readdirSync(FOLDER)
  .filter((name) => name.endsWith(".json"))
  .map((name) => [name, JSON.parse(readFileSync(join(FOLDER, name), "utf8"))]);

export function transcript(name: string): Transcript {
  const found = transcripts.find(([file]) => file === `${name}.json`);
  if (!found) throw new Error(`no transcript ${name}`);
  return structuredClone(found[1]);
}
