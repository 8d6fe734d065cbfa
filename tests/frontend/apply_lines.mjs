/*
 * The browser's own `applyMessage` as a process: a line of JSON in, a line out. {snapshot} replaces what is held,
 * {message} is applied and answers its outcome, {state} answers what is held.
 */

import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const { applyMessage } = await import(pathToFileURL(process.argv[2]).href);
let held = null;

const answers = {
  snapshot: (snapshot) => {
    held = snapshot;
    return { outcome: "held" };
  },
  message: (message) => {
    const { snapshot, outcome } = applyMessage(held, message);
    held = snapshot;
    return { outcome };
  },
  state: () => ({ state: held }),
};

for await (const line of createInterface({ input: process.stdin })) {
  const [[verb, given]] = Object.entries(JSON.parse(line));
  process.stdout.write(`${JSON.stringify(answers[verb](given))}\n`);
}
