/* A box on the page for each test of whoever imports it to render in; afterwards it is emptied, and what was stubbed is real again. */

import { render } from "preact";
import { afterEach, beforeEach, vi } from "vitest";

export let box: HTMLDivElement;

beforeEach(() => {
  box = document.body.appendChild(document.createElement("div"));
});

afterEach(() => {
  render(null, box);
  box.remove();
  vi.unstubAllGlobals();
});
