/* A question asked again and again: one at a time, and never the answer to another question. */

import { render } from "preact";
import { act } from "preact/test-utils";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { usePolled } from "../src/parts/usePolled";
import { box } from "./box";

let asked: { about: string; answer: (text: string) => void; fail: () => void }[];

beforeEach(() => {
  vi.useFakeTimers();
  asked = [];
});
afterEach(() => {
  vi.useRealTimers();
});

function Asking({ about }: { about: string }) {
  const read = () =>
    new Promise<string>((answer, reject) => asked.push({ about, answer, fail: () => reject(new Error("no")) }));
  const { value, failure } = usePolled(about, read, 5000);
  return (
    <p>
      {value ?? "nothing"} {failure?.message}
    </p>
  );
}

const show = (about: string) => act(async () => render(<Asking about={about} />, box));
const settle = (how: () => void) =>
  act(async () => {
    how();
    await vi.advanceTimersByTimeAsync(1);
  });
const pass = (ms: number) => act(async () => void (await vi.advanceTimersByTimeAsync(ms)));

it("waits for an answer however long it takes, then asks again after the time between", async () => {
  await show("job 1");
  await pass(60_000);
  expect(asked).toHaveLength(1);
  await settle(() => asked[0].answer("first"));
  expect(box.textContent).toContain("first");
  await pass(4900);
  expect(asked).toHaveLength(1);
  await pass(200);
  expect(asked).toHaveLength(2);
});

it("goes on after a failure, with the older answer in sight", async () => {
  await show("job 1");
  await settle(() => asked[0].answer("first"));
  await pass(5100);
  await settle(() => asked[1].fail());
  expect(box.textContent).toContain("first no");
  await pass(5100);
  expect(asked).toHaveLength(3);
});

it("drops what is told of another job", async () => {
  await show("job 1");
  await show("job 2");
  await settle(() => asked[1].answer("of 2"));
  await settle(() => asked[0].answer("of 1"));
  expect(box.textContent).toContain("of 2");
  expect(box.textContent).not.toContain("of 1");
});

it("asks a new question its own time after its own answer, not after that of the question before", async () => {
  await show("job 1");
  await settle(() => asked[0].answer("of 1"));
  await pass(3000);
  await show("job 2");
  await pass(6000);
  await settle(() => asked[1].answer("of 2"));
  await pass(4900);
  expect(asked).toHaveLength(2);
  await pass(200);
  expect(asked.map((one) => one.about)).toEqual(["job 1", "job 2", "job 2"]);
});

it("waits while nobody looks at the page, and asks at once when somebody does again", async () => {
  const look = (isHidden: boolean) => {
    Object.defineProperty(document, "hidden", { configurable: true, get: () => isHidden });
    return act(async () => void document.dispatchEvent(new Event("visibilitychange")));
  };
  await show("job 1");
  await settle(() => asked[0].answer("first"));
  await look(true);
  await pass(60_000);
  expect(asked).toHaveLength(1);
  await look(false);
  expect(asked).toHaveLength(2);
  await look(true);
  await look(false);
  expect(asked).toHaveLength(2);
  Reflect.deleteProperty(document, "hidden");
});
