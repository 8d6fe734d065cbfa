/* What the audit's address asks for, as the REST API wants it, and where an entry leads. */

/** Kind of actor → its word. */
export const KINDS: Readonly<Record<string, string>> = {
  user: "person",
  api: "token",
  command: "command on the server",
  provider: "sign-in provider",
  ticket: "another system",
  system: "the console",
  nobody: "nobody signed in",
};

export const FILTERS = ["kind", "actor", "q", "since", "until"] as const;

/** "?…" for the REST API; days are UTC, `until` inclusive. `cursors`: with the page, too. */
export function auditQuery(address: URLSearchParams, cursors = true): string {
  const asked = new URLSearchParams();
  for (const name of ["kind", "actor", "q"]) put(asked, name, address.get(name));
  put(asked, "since", dayStart(address.get("since"), 0));
  put(asked, "until", dayStart(address.get("until"), 1));
  if (cursors) {
    put(asked, "before", address.get("before"));
    put(asked, "after", address.get("after"));
    const entry = entryOf(address);
    if (entry !== null && !asked.has("before") && !asked.has("after")) asked.set("before", String(entry + 1));
  }
  return asked.size ? `?${asked}` : "";
}

/** The entry a link points at. */
export function entryOf(address: URLSearchParams): number | null {
  const raw = address.get("entry") ?? "";
  return /^\d{1,15}$/.test(raw) ? Number(raw) : null;
}

/** The page that shows what an entry was about; null where there is none. */
export function pageOf(subject: string): string | null {
  const [room, id, part] = subject.split(/[/:]/);
  if (room === "incidents" && /^\d+$/.test(id ?? "")) return `/incidents/${id}`;
  if (room === "jobs" && /^\d+$/.test(id ?? "")) return part === "settings" ? `/jobs/${id}/settings` : `/jobs/${id}`;
  if (room === "bundles") return id ? `/bundle/${id}` : "/bundle";
  if (room === "silences") return "/silences";
  if (room === "destinations" || room === "deliveries") return "/destinations";
  return room === "tokens" || room === "api-tokens" ? "/settings" : null;
}

/** What the words leave out: the subject of a command, or which token it was. */
export function restOf(words: string, act: string, subject: string): string {
  if (words === act) return words.includes("incident") ? "" : subject;
  const at = subject.indexOf(": ");
  return at < 0 ? "" : subject.slice(at + 2);
}

function put(asked: URLSearchParams, name: string, value: string | null): void {
  if (value) asked.set(name, value);
}

function dayStart(day: string | null, later: number): string | null {
  const at = /^\d{4}-\d\d-\d\d$/.test(day ?? "") ? Date.parse(`${day}T00:00:00Z`) : Number.NaN;
  return Number.isNaN(at) ? null : new Date(at + later * 86_400_000).toISOString();
}
