/* Dropping a bundle: what is refused before a byte is sent, and what the answer's verdict says. */

import axe from "axe-core";
import { render } from "preact";
import { act } from "preact/test-utils";
import { afterEach, describe, expect, it } from "vitest";
import type { Session } from "../src/api";
import { verdictRowOf } from "../src/dumps/bundle";
import { BUNDLE_BYTES_MAX, refusalOf, sizeWords } from "../src/dumps/upload";
import { BundlePage } from "../src/pages/BundlePage";
import { isPage } from "../src/state/address";
import { session } from "../src/state/team";
import { makeDiagnosis, makeFinding } from "./fixtures";

const SESSION: Session = {
  user: "rita",
  name: "Rita",
  role: "responder",
  roles: { training: "responder" },
  csrf: "",
  server_at: "2026-11-21T15:05:40.000Z",
  version: "0",
  demo: false,
};

afterEach(() => {
  act(() => render(null, document.body));
  session.value = null;
});

describe("a file to drop", () => {
  it("may be any zip within the limit", () => {
    expect(refusalOf({ name: "Dumps.ZIP", size: 1 })).toBe("");
    expect(refusalOf({ name: "dumps.zip", size: BUNDLE_BYTES_MAX })).toBe("");
  });

  it("is refused with the reason before anything is sent", () => {
    expect(refusalOf({ name: "rank0.pickle", size: 10 })).toContain("is not a zip");
    expect(refusalOf({ name: "dumps.zip", size: 0 })).toContain("is empty");
    expect(refusalOf({ name: "dumps.zip", size: BUNDLE_BYTES_MAX + 1 })).toContain("python -m rca bundle");
  });

  it("has its size in words", () => {
    expect([900, 12_400_000, 2_340_000_000].map(sizeWords)).toEqual(["1 kB", "12 MB", "2.3 GB"]);
  });
});

function drawAs(who: Session): void {
  session.value = who;
  const page = (
    <main>
      <BundlePage id="" />
    </main>
  );
  act(() => render(page, document.body));
}

describe("the page of a bundle", () => {
  it("takes none from who may only look, and asks for which team of several it is", () => {
    drawAs({ ...SESSION, roles: { training: "viewer" } });
    expect(document.querySelector("input[type=file]")).toBeNull();
    expect(document.body.textContent).toContain("needs the responder role");
    act(() => render(null, document.body));
    drawAs({ ...SESSION, roles: { training: "responder", serving: "admin", lab: "viewer" } });
    expect([...document.querySelectorAll("option")].map((one) => one.textContent)).toEqual(["training", "serving"]);
  });

  it("has a field the keyboard reaches, and nothing axe complains about", async () => {
    drawAs(SESSION);
    expect(document.querySelector("label input[type=file]")).not.toBeNull();
    const { violations } = await axe.run(document.body, { rules: { "color-contrast": { enabled: false } } });
    expect(violations.map(({ id }) => id)).toEqual([]);
  });

  it("has an address that can be sent", () => {
    expect([isPage("/bundle"), isPage("/bundle/7f3a-91"), isPage("/bundle/a/b")]).toEqual([true, true, false]);
  });
});

describe("the verdict of a bundle", () => {
  it("is the best finding's sentence", () => {
    const row = verdictRowOf(makeDiagnosis({ findings: [makeFinding({ culprits: [4, 5] })] }));
    expect(row).toMatchObject({ headline: "Rank 4 started it.", n_culprits: 2, grade: "strong" });
  });

  it("names nobody where no finding does", () => {
    expect(verdictRowOf(makeDiagnosis({ findings: [] }))).toMatchObject({
      headline: "Nobody can be named from these dumps.",
      culprits: [],
    });
  });
});
