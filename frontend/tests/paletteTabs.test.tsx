/* What several parts of a page offer is offered together, and a tab is found by its name. */

import { render } from "preact";
import { act } from "preact/test-utils";
import { afterEach, expect, it, vi } from "vitest";
import { Tabs } from "../src/parts/Tabs";
import { query, setQuery } from "../src/state/address";
import { offered, useOffers } from "../src/state/offered";

const run = vi.fn();
const tab = (id: string, word: string) => ({ id, word, content: () => <p>{word} it is</p> });
const TABS = [tab("evidence", "Evidence"), tab("take", "Take away")];

function Acts() {
  useOffers([{ word: "Resolve …", hint: "r", run }], "");
  return null;
}

function Page({ hasTabs = true, hasActs = true }) {
  return (
    <>
      {hasActs && <Acts />}
      {hasTabs && <Tabs tabs={TABS} label="More" />}
    </>
  );
}

const words = () => offered.value.map(({ word }) => word);
const show = (page: preact.ComponentChildren) => act(() => render(page, document.body));

afterEach(() => {
  show(null);
  setQuery({ tab: null });
});

it("offers the acts and the tabs of a page, and takes back what is gone", () => {
  show(<Page />);
  expect(words().toSorted()).toEqual(["Resolve …", "Show Evidence", "Show Take away"]);
  show(<Page hasActs={false} />);
  expect(words()).toEqual(["Show Evidence", "Show Take away"]);
  show(<Page hasTabs={false} />);
  expect(words()).toEqual(["Resolve …"]);
  show(null);
  expect(words()).toEqual([]);
});

it("shows the tab that was asked for and brings the keyboard there", () => {
  Element.prototype.scrollIntoView = vi.fn();
  show(<Page />);
  act(() => offered.value.find(({ word }) => word === "Show Take away")?.run());
  expect(query.value.get("tab")).toBe("take");
  expect(document.body.textContent).toContain("Take away it is");
  expect(document.activeElement?.id).toBe("tab-take");
});
