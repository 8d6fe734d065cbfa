/* What the Now page says of ingest: every loss with its reason, strangers told but not alarming, nothing made up. */

import { describe, expect, it } from "vitest";
import type { IngestRow } from "../src/live/rows";
import { nodesWords, nothingWrongWords, troublesOf } from "../src/parts/IngestHealth";

const WELL: IngestRow = {
  store: "native partitions",
  disk: "ok",
  disk_says: "",
  processes: 2,
  batches_per_s: 4,
  nodes_reporting: 4,
  nodes_silent: 0,
  nodes_catching_up: 0,
  nodes_unheard: 0,
  rows_dropped: 0,
  batches_refused: 0,
  requests_refused: {},
  losses: {},
  strays: 0,
  counted_since: "2026-11-21T18:08:12.000Z",
};

const said = (row: Partial<IngestRow>) => troublesOf({ ...WELL, ...row });

describe("ingest's troubles", () => {
  it("are none when nothing was refused, lost or dropped", () => {
    expect(said({})).toEqual([]);
  });

  it("are not invented where nobody can say", () => {
    expect(said({ processes: null, batches_per_s: null, disk: "unknown" })).toEqual([]);
  });

  it("begin with a short disk, because traces are refused then", () => {
    const [first] = said({ disk: "short", disk_says: "3 MiB left. Make room.", losses: { spool_batches: 3 } });
    expect(first?.what).toBe("Traces are refused: the disk is short.");
    expect(first?.why).toBe("3 MiB left. Make room.");
    expect(first?.isBad).toBe(true);
  });

  it("name each kind of loss", () => {
    const words = said({ losses: { spool_batches: 3, ring_records: 1200, something_new: 1 } }).map((one) => one.what);
    expect(words).toEqual([
      "3 batches dropped from a full spool",
      "1,200 records overwritten before they were read",
      "1 something new",
    ]);
  });

  it("tell refused requests by reason, once, and alarm only for our own faults", () => {
    const found = said({ batches_refused: 2, requests_refused: { "400": 2, "401": 7, "500": 1 } });
    expect(found.map((one) => one.what)).toEqual(["2 batches refused", "7 requests refused", "1 request refused"]);
    expect(found.map((one) => one.isBad)).toEqual([true, false, true]);
    expect(found[1]?.why).toBe("no valid agent token");
  });

  it("are said to be none only since somebody counts", () => {
    expect(nothingWrongWords(WELL)).toBe("Nothing was refused, lost or dropped since 18:08:12 UTC.");
    expect(nothingWrongWords({ ...WELL, counted_since: null })).toBe("Whether anything is refused is not known.");
  });

  it("never call a node silent that nobody could hear", () => {
    expect(nodesWords({ ...WELL, nodes_reporting: 3, nodes_silent: 1 })).toBe("3 reporting, 1 silent");
    const away = { ...WELL, nodes_reporting: 0, nodes_unheard: 4, processes: 0 };
    expect(nodesWords(away)).toBe("0 reporting, 4 not heard: ingest is away");
    expect(nodesWords({ ...away, processes: 2 })).toBe("0 reporting, 4 not heard yet: ingest was away");
    expect(nodesWords({ ...away, disk: "short" })).toBe("0 reporting, 4 refused: the disk is short");
  });

  it("say that no process was heard from, and that runs share a name", () => {
    expect(said({ processes: 0 })[0]?.what).toBe("No ingest process was heard from.");
    expect(said({ strays: 1 })[0]?.what).toBe("1 batch nobody looks at");
  });
});
