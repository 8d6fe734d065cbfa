/* Acts on many, marks, the shown state, the palette's commands, addresses of lists and links. */

import { afterEach, describe, expect, it, vi } from "vitest";
import type { Outcome } from "../src/handling";
import { ranksOf } from "../src/incident/HandlingDialogs";
import { decodeFrame } from "../src/live/decode";
import { type Around, commandsFor } from "../src/palette/commands";
import { minutesOf } from "../src/silences/durations";
import { guessFor, valuesOf } from "../src/silences/matchers";
import { go, permalink, pinnedTime, query } from "../src/state/address";
import { bulkUnderWay, bulkWords, doToMany } from "../src/state/bulk";
import { cameFrom, filtersOf, incidentHref, listQuery } from "../src/state/list";
import { toggled } from "../src/state/marks";
import { notices } from "../src/state/notices";
import { isLoud, shownState } from "../src/state/status";
import { makeIncident, makeJob } from "./fixtures";

const NOW = Date.parse("2026-11-22T12:00:00Z");
const LATER = "2026-11-22T13:00:00Z";

afterEach(() => {
  vi.unstubAllGlobals();
  go("/");
});

describe("the state that is shown", () => {
  it.each([
    [{}, "open"],
    [{ silence: 3, silenced_until: LATER }, "silenced"],
    [{ silence: 3, silenced_until: "2026-11-22T11:00:00Z" }, "open"],
    [{ state: "acknowledged", silence: 3, silenced_until: LATER }, "acknowledged"],
    [{ state: "acknowledged", attached_to: 7 }, "attached"],
    [{ state: "resolved", attached_to: 7 }, "resolved"],
  ] as const)("of %o is %s", (changes, shown) => {
    expect(shownState(makeIncident(changes), NOW)).toBe(shown);
  });

  it("is loud while somebody is to handle it", () => {
    expect(isLoud(makeIncident(), NOW)).toBe(true);
    expect(isLoud(makeIncident({ attached_to: 7 }), NOW)).toBe(false);
  });
});

describe("acts on many", () => {
  const outcome = (number: number, error = ""): Outcome => ({ number, incident: null, code: error && "x", error });

  it("tell what was done, and of each that was not why", () => {
    expect(bulkWords("acknowledge", 2, [outcome(1), outcome(2)])).toBe("2 incidents acknowledged.");
    expect(bulkWords("resolve", 0, [outcome(1, "It is resolved.")])).toBe("#1: It is resolved.");
    const many = [1, 2, 3, 4, 5].map((number) => outcome(number, "No."));
    expect(bulkWords("resolve", 0, many)).toBe("#1, #2, #3 and 2 more: No.");
    const each = [1, 2, 3, 4, 5].map((number) => outcome(number, `No ${number}.`));
    expect(bulkWords("resolve", 0, each)).toBe("#1: No 1. #2: No 2. #3: No 3. And 2 more were refused.");
  });

  it("are not asked for twice at once", async () => {
    let asked = 0;
    let answer: (response: Response) => void = () => undefined;
    vi.stubGlobal("fetch", () => {
      asked += 1;
      return new Promise<Response>((settle) => {
        answer = settle;
      });
    });
    const first = doToMany("acknowledge", [makeIncident()]);
    expect(bulkUnderWay.value).toBe(true);
    expect(await doToMany("acknowledge", [makeIncident()])).toBe(false);
    answer(Response.json({ n_done: 1, outcomes: [outcome(12)] }));
    expect(await first).toBe(true);
    expect([asked, bulkUnderWay.value]).toEqual([1, false]);
  });

  it("that nobody answers say so and can be asked again", async () => {
    vi.stubGlobal("fetch", () => Promise.resolve(Response.json({ error: "Too many." }, { status: 400 })));
    expect(await doToMany("acknowledge", [makeIncident()])).toBe(false);
    expect(notices.value.at(-1)?.text).toBe("Too many.");
    expect(bulkUnderWay.value).toBe(false);
  });

  it("are for what is marked", () => {
    expect([...toggled(new Set([1, 2]), 2)]).toEqual([1]);
    expect([...toggled(new Set([1]), 2)]).toEqual([1, 2]);
  });
});

describe("addresses", () => {
  it("keep the list an incident was opened from", () => {
    go("/incidents?state=open&node=r1n3&rank=4&cursor=o17");
    expect(listQuery()).toBe("?state=open&node=r1n3&cursor=o17");
    const filters = filtersOf(query.value);
    expect(filters).toBe("state=open&node=r1n3");
    go(incidentHref(12, filters));
    expect(cameFrom()).toBe(filters);
    expect(incidentHref(12, "")).toBe("/incidents/12");
  });

  it("keep no filter that nobody knows", () => {
    go("/incidents/12?in=state%3Dopen%26evil%3D1");
    expect(cameFrom()).toBe("state=open");
  });

  it("pin time, tab, rank and zone for a colleague", () => {
    go("/incidents/12?tab=evidence&rank=4&in=state%3Dopen");
    const link = new URL(permalink("utc", [1_790_000_000_000.4, 1_790_000_060_000]));
    go(link.href);
    expect(pinnedTime()).toEqual([1_790_000_000_000, 1_790_000_060_000]);
    expect(link.search).toBe("?tab=evidence&rank=4&z=utc&from=1790000000000&to=1790000060000");
  });

  it.each(["?from=1&to=2", "?from=1790000060000&to=1790000000000", "?from=x&to=1790000000000", ""])(
    "that pin no time are none: %s",
    (search) => {
      go(`/incidents/12${search}`);
      expect(pinnedTime()).toBeNull();
    },
  );
});

describe("silences", () => {
  it("start from where the culprits are, else from the same trouble of the job", () => {
    expect(guessFor(makeIncident({ nodes: ["r1n3"] }))).toEqual([{ field: "node", values: ["r1n3"], is_not: false }]);
    expect(guessFor(makeIncident({ nodes: [] })).map(({ field }) => field)).toEqual(["job", "symptom"]);
  });

  it.each([
    ["2h", 120],
    ["45m", 45],
    ["45 min", 45],
    ["1d", 1440],
    ["0m", null],
    ["soon", null],
  ])("of %s last %s minutes", (text, minutes) => {
    expect(minutesOf(text)).toBe(minutes);
  });

  it("take several values", () => {
    expect(valuesOf(" a, ,b* ,")).toEqual(["a", "b*"]);
  });
});

it.each([
  ["3, 5-7", [3, 5, 6, 7]],
  ["", []],
  ["7-5", null],
  ["0-64", null],
  ["a", null],
])("ranks typed as %s are %s", (text, ranks) => {
  expect(ranksOf(text)).toEqual(ranks);
});

it("hears who else is looking", () => {
  expect(decodeFrame('{"presence":"incident:12","people":["olaf","rita"]}')).toEqual({
    kind: "presence",
    stream: "incident:12",
    people: ["olaf", "rita"],
  });
});

describe("the palette", () => {
  const done: string[] = [];
  const around = (changes: Partial<Around> = {}): Around => ({
    here: null,
    incidents: [makeIncident({ headline: "Rank 4 of node-1 started it." })],
    offers: [{ word: "Resolve …", hint: "#12, key r", run: () => done.push("resolve") }],
    job: null,
    exists: undefined,
    views: [{ id: 1, name: "Night shift", query: "state=open", shared: true, mine: false }],
    mayAct: true,
    isAdmin: false,
    go: (to) => done.push(to),
    selectRank: (rank) => done.push(`select ${rank}`),
    act: (row, verb) => done.push(`${verb} ${row.number}`),
    silence: (row, minutes) => done.push(`silence ${row?.number} ${minutes}`),
    setZone: () => done.push("zone"),
    setTheme: (theme) => done.push(theme),
    ...changes,
  });
  const first = (text: string, changes: Partial<Around> = {}) => {
    done.length = 0;
    commandsFor(text, around(changes))[0]?.run();
    return done[0];
  };

  it.each([
    ["#12", "/incidents/12"],
    ["rank 4711", "/incidents?q=rank%204711"],
    ["node r1n3", "/nodes/r1n3"],
    ["started it", "/incidents/12"],
    ["night", "/incidents?q=night"],
    ["", "/"],
    ["silence 30m", "silence undefined 30"],
    ["silences", "/silences"],
    ["dest", "/destinations"],
  ])("for “%s” does %s first", (text, what) => {
    expect(first(text)).toBe(what);
  });

  it("finds of a rank what blames, suspects or names it, and of a number what holds it as a whole", () => {
    const five = { headline: "Rank 5 never started op 45 of tp_4.", culprits: [5], suspects: [5], job: "llama-4" };
    const incidents = [
      makeIncident({ number: 41, ...five }),
      makeIncident({ number: 42, ...five, headline: "One of two started it.", culprits: [], suspects: [4, 6] }),
      makeIncident({ number: 43, ...five, headline: "Suspected hang: rank 4 is late.", culprits: [], suspects: [] }),
      makeIncident({ number: 44, ...five, headline: "Rank 40 is stopped.", culprits: [40], suspects: [40] }),
    ];
    const found = (text: string) =>
      commandsFor(text, around({ incidents, offers: [] }))
        .map(({ word }) => /^#(\d+)/.exec(word)?.[1])
        .filter(Boolean);
    expect(found("rank 4")).toEqual(["42", "43"]);
    expect(found("rank 5")).toEqual(["41"]);
    expect(found("op 45")).toEqual(["41"]);
    expect(found("started 5")).toEqual(["41"]);
    expect(found("rank")).toEqual(["41", "43", "44"]);
  });

  it("leads administrators alone to the audit", () => {
    expect(first("audit", { isAdmin: true })).toBe("/audit");
    expect(commandsFor("who did what", around()).map(({ word }) => word)).not.toContain("Audit");
  });

  it("acts on the incident in sight", () => {
    const here = makeIncident();
    expect(first("ack", { here })).toBe("acknowledge 12");
    expect(first("silence 2h", { here })).toBe("silence 12 120");
    expect(first("rank 3", { here })).toBe("select 3");
  });

  it("offers what the page in sight offers, and its job's thresholds", () => {
    expect(first("resolve")).toBe("resolve");
    expect(first("threshold", { job: makeJob() })).toBe("/jobs/1/settings");
  });

  it("says that an incident or a rank does not exist, and does nothing then", () => {
    expect(commandsFor("#99", around({ exists: false }))[0]).toMatchObject({
      word: "There is no incident 99",
      isNote: true,
    });
    const [said] = commandsFor("rank 64", around({ here: makeIncident(), job: makeJob({ world_size: 64 }) }));
    expect(said).toMatchObject({ word: "There is no rank 64 here", isNote: true });
    expect(first("rank 63", { here: makeIncident(), job: makeJob({ world_size: 64 }) })).toBe("select 63");
  });

  it("offers no act to who may only look", () => {
    const words = commandsFor("", around({ mayAct: false, here: makeIncident() })).map(({ word }) => word);
    expect(words).not.toContain("Acknowledge");
    expect(words.some((word) => word.startsWith("Silence …") || word.startsWith("New silence"))).toBe(false);
  });

  it("finds saved views and colours by their words", () => {
    expect(commandsFor("night", around()).map(({ word }) => word)).toContain("Night shift");
    expect(commandsFor("dark", around()).map(({ word }) => word)).toContain("Colours: dark");
  });
});
