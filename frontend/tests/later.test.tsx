import { render } from "preact";
import { act } from "preact/test-utils";
import { afterEach, expect, it } from "vitest";
import { later } from "../src/parts/later";

const Page = ({ id }: { id: number }) => <h1>Job {id}</h1>;
const settle = () => act(() => new Promise((resolve) => setTimeout(resolve, 0)));

afterEach(() => act(() => render(null, document.body)));

it("fetches a page when it is opened, and once", async () => {
  let fetches = 0;
  const Later = later(async () => {
    fetches += 1;
    return Page;
  }, "the job");
  act(() => render(<Later id={7} />, document.body));
  expect(document.body.textContent).toBe("Loading the job …");
  await settle();
  expect(document.body.textContent).toBe("Job 7");
  act(() => render(null, document.body));
  act(() => render(<Later id={8} />, document.body));
  expect(document.body.textContent).toBe("Job 8");
  expect(fetches).toBe(1);
});

it("says when it could not be fetched, and can be tried again", async () => {
  let isThere = false;
  const Later = later(() => (isThere ? Promise.resolve(Page) : Promise.reject(new TypeError("gone"))), "the job");
  act(() => render(<Later id={7} />, document.body));
  await settle();
  expect(document.body.textContent).toContain("This could not be loaded.");
  isThere = true;
  act(() => document.querySelector("button")?.click());
  await settle();
  expect(document.body.textContent).toBe("Job 7");
});
