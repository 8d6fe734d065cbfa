/*
 * What the command palette offers for a text: pages, incidents by number or words, "rank 12" and "node x" where one is,
 * acts on the incident in sight, saved views, zone and colours. Pure, but for what the commands do when chosen.
 */

import type { ViewRow } from "../handling";
import type { IncidentRow, JobRow } from "../live/rows";
import { minutesOf } from "../silences/durations";

export interface Command {
  word: string;
  hint: string;
  run: () => void;
  /** Says something and does nothing: the palette stays. */
  isNote?: boolean;
}

export interface Around {
  /** The incident in sight, if the page is one's. */
  here: IncidentRow | null;
  incidents: readonly IncidentRow[];
  /** What the page in sight offers to do. */
  offers: readonly Command[];
  /** The job in sight, by its page or its incident's. */
  job: JobRow | null;
  /** Whether the incident whose number was typed exists; undefined while that is not known. */
  exists: boolean | undefined;
  views: readonly ViewRow[];
  mayAct: boolean;
  isAdmin: boolean;
  go: (to: string) => void;
  selectRank: (rank: number) => void;
  act: (row: IncidentRow, verb: "acknowledge" | "unacknowledge") => void;
  silence: (row: IncidentRow | null, minutes: number | null) => void;
  setZone: () => void;
  setTheme: (theme: "dark" | "light" | "system") => void;
}

const PAGES: readonly (readonly [string, string, string])[] = [
  ["Now", "/", "open incidents, jobs, ingest"],
  ["Incidents", "/incidents", "the list"],
  ["My incidents", "/incidents?who=me", "assigned to or acknowledged by me"],
  ["Open incidents", "/incidents?state=open", "that nobody has"],
  ["Silences", "/silences", "and maintenance"],
  ["Destinations", "/destinations", "who is told: PagerDuty, Slack, Jira, …; deliveries"],
  ["Scorecard", "/scorecard", "how often the console was right"],
  ["Nodes", "/nodes", "agents and their losses, who is blamed again"],
  ["Questions", "/questions", "how long, how fast, how many ops: per time, rank, node; CSV, Parquet"],
  ["Bundle", "/bundle", "read dumps brought by hand"],
  ["Settings", "/settings", "keys, colours, tokens"],
  ["Audit", "/audit", "who did what"],
  ["API documentation", "/api/v1/docs", "REST"],
];
const ADMIN_PAGES: readonly string[] = ["/audit"];
const SHOWN_MAX = 12;
const NAMED_FROM = 3;

export function commandsFor(text: string, around: Around): Command[] {
  const typed = text.trim().toLowerCase();
  const isNamed = (word: string) => typed.length >= NAMED_FROM && word.toLowerCase().startsWith(typed);
  const named = pages(around).filter(({ word }) => isNamed(word)); // before a search for the same word
  const found = [
    ...exact(typed, around),
    ...acts(typed, around),
    ...offers(typed, around),
    ...named,
    ...incidents(typed, around),
  ];
  const rest = [
    ...pages(around).filter(({ word }) => !isNamed(word)),
    ...views(around),
    ...newSilence(around),
    ...looks(around),
  ].filter(({ word, hint }) => matches(typed, `${word} ${hint}`));
  return [...found, ...rest].slice(0, SHOWN_MAX);
}

/** Every word typed occurs. */
export function matches(typed: string, text: string): boolean {
  const lower = text.toLowerCase();
  return typed.split(/\s+/).every((word) => lower.includes(word));
}

/** The incident a text names by its number. */
export function numberIn(text: string): number | null {
  const number = /^#?(\d{1,15})$/.exec(text.trim())?.[1];
  return number ? Number(number) : null;
}

/** The rank a text names. */
function rankIn(typed: string): number | null {
  const rank = /^rank (\d{1,7})$/.exec(typed)?.[1];
  return rank ? Number(rank) : null;
}

function note(word: string, hint: string): Command {
  return { word, hint, run: () => undefined, isNote: true };
}

function numbered(number: number, { exists, go }: Around): Command {
  if (exists === false) return note(`There is no incident ${number}`, "or it is another team’s");
  const hint = exists ? "open" : "open, if there is one";
  return { word: `Incident ${number}`, hint, run: () => go(`/incidents/${number}`) };
}

/** What the text names by itself. */
function exact(typed: string, around: Around): Command[] {
  const number = numberIn(typed);
  const rank = rankIn(typed)?.toString();
  const node = /^node (\S+)$/.exec(typed)?.[1];
  const found: Command[] = [];
  if (number !== null) found.push(numbered(number, around));
  if (rank && around.job && Number(rank) >= around.job.world_size)
    return [note(`There is no rank ${rank} here`, `${around.job.name} has ${around.job.world_size}`)];
  if (rank && around.here)
    found.push({ word: `Rank ${rank}`, hint: "select it here", run: () => around.selectRank(Number(rank)) });
  if (rank && around.job) {
    const to = `/jobs/${around.job.id}/ranks/${Number(rank)}`;
    found.push({ word: `Page of rank ${rank}`, hint: around.job.name, run: () => around.go(to) });
  }
  if (rank)
    found.push({
      word: `Incidents of rank ${rank}`,
      hint: "where it was blamed",
      run: () => around.go(`/incidents?q=${encodeURIComponent(`rank ${rank}`)}`),
    });
  if (node) {
    const name = encodeURIComponent(node);
    found.push({
      word: `Page of node ${node}`,
      hint: "its ranks, NICs, incidents",
      run: () => around.go(`/nodes/${name}`),
    });
    found.push({
      word: `Incidents at ${node}`,
      hint: "culprits’ node",
      run: () => around.go(`/incidents?node=${name}`),
    });
    if (around.mayAct)
      found.push({
        word: `Maintenance of ${node} …`,
        hint: "silence it while it is worked on",
        run: () => around.go(`/silences?new=maintenance&node=${name}`),
      });
  }
  return found;
}

function acts(typed: string, around: Around): Command[] {
  const { here, mayAct } = around;
  if (!mayAct) return [];
  const asked = /^silence\s+(\S+(?: ?(?:m|min|h|d))?)$/.exec(typed)?.[1];
  const minutes = asked ? minutesOf(asked) : null;
  const found: Command[] = [];
  if (here?.state === "open")
    found.push({ word: "Acknowledge", hint: `#${here.number}, key a`, run: () => around.act(here, "acknowledge") });
  if (here?.state === "acknowledged")
    found.push({ word: "Un-acknowledge", hint: `#${here.number}`, run: () => around.act(here, "unacknowledge") });
  if (here && here.state !== "resolved") {
    const long = minutes === null ? "" : ` for ${asked}`;
    found.push({
      word: `Silence${long} …`,
      hint: `#${here.number} and its like`,
      run: () => around.silence(here, minutes),
    });
  }
  if (minutes !== null && !here)
    found.push({ word: `New silence for ${asked} …`, hint: "by matchers", run: () => around.silence(null, minutes) });
  return found.filter(({ word, hint }) =>
    matches(asked && minutes !== null ? "silence" : typed, `${word} ${hint} ack`),
  );
}

/** What the page offers, and the settings of the job in sight. */
function offers(typed: string, { offers: offered, job, go }: Around): Command[] {
  const settings = job && {
    word: `Thresholds of ${job.name}`,
    hint: "settings of the job",
    run: () => go(`/jobs/${job.id}/settings`),
  };
  if (!typed) return [];
  return [...offered, ...(settings ? [settings] : [])].filter(({ word, hint }) => matches(typed, `${word} ${hint}`));
}

function newSilence({ mayAct, silence }: Around): Command[] {
  return mayAct ? [{ word: "New silence …", hint: "by matchers", run: () => silence(null, null) }] : [];
}

/** Whether every word typed occurs; a number as a whole one: 4 is not in op 45, nor in #14. */
function isAbout({ number, headline, job }: IncidentRow, typed: string): boolean {
  const text = `#${number} ${headline} ${job}`.toLowerCase();
  const numbers: string[] = text.match(/\d+/g) ?? [];
  return typed.split(/\s+/).every((word) => (/^\d+$/.test(word) ? numbers.includes(word) : text.includes(word)));
}

/** Whether it blames or suspects this rank, or its headline names it: not whether the rank's digits occur anywhere. */
function names({ culprits, suspects, headline }: IncidentRow, rank: number): boolean {
  return [...culprits, ...suspects].includes(rank) || new RegExp(`\\branks? ${rank}\\b`, "i").test(headline);
}

function incidents(typed: string, around: Around): Command[] {
  if (!typed) return [];
  const rank = rankIn(typed);
  const found = around.incidents.filter((row) => (rank === null ? isAbout(row, typed) : names(row, rank)));
  const commands = found.slice(0, 5).map((row) => ({
    word: `#${row.number} ${row.headline}`,
    hint: row.job,
    run: () => around.go(`/incidents/${row.number}`),
  }));
  const query = `/incidents?q=${encodeURIComponent(typed)}`;
  return [...commands, { word: `Search incidents for “${typed}”`, hint: "all of them", run: () => around.go(query) }];
}

function pages({ go, isAdmin }: Around): Command[] {
  const shown = PAGES.filter(([, to]) => isAdmin || !ADMIN_PAGES.includes(to));
  return shown.map(([word, to, hint]) => ({ word, hint, run: () => go(to) }));
}

function views({ views: saved, go }: Around): Command[] {
  return saved.map((view) => ({
    word: view.name,
    hint: view.shared ? "the team’s view" : "your view",
    run: () => go(`/incidents?${view.query}`),
  }));
}

function looks({ setZone, setTheme }: Around): Command[] {
  const themes = (["dark", "light", "system"] as const).map((theme) => ({
    word: `Colours: ${theme}`,
    hint: "theme",
    run: () => setTheme(theme),
  }));
  return [{ word: "Switch the time zone", hint: "UTC or this browser’s", run: setZone }, ...themes];
}
