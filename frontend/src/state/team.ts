/*
 * What every page needs: who is signed in, and the team's stream (open incidents, jobs, ingest). The stream is held
 * for as long as the page lives; lists and the Now page read it, the title and the icon count its open incidents.
 */

import { computed, signal } from "@preact/signals";
import { readNow, readSession, type Session } from "../api";
import { emptySnapshot } from "../live/apply";
import type { JobRow, LiveMessage } from "../live/rows";
import { Connection, LiveStream } from "../live/streams";
import { awayWords } from "./away";
import { serverNow, tick } from "./clock";
import { announce } from "./notices";
import { shownState } from "./status";

export const session = signal<Session | null>(null);
export const mayAct = computed(() => ["responder", "admin"].includes(session.value?.role ?? ""));
export const sessionFailure = signal<Error | null>(null);

export const connection = new Connection(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws/v1/`);

/** The newest team message, for pages that keep lists of their own. */
export const lastTeamMessage = signal<LiveMessage | null>(null);

export const team = new LiveStream(connection, {
  // Every look tells of its job, and every ten seconds of ingest: a worker, ingest or database that died falls quiet.
  isTalkative: true,
  // Of several teams only the first's stream is followed.
  isPartial: () => Object.keys(session.value?.roles ?? {}).length > 1,
  fetchSnapshot: async () => {
    const now = await readNow();
    return { ...emptySnapshot(now.stream), incidents: now.incidents, jobs: now.jobs, ingest: now.ingest };
  },
  onMessage: (message) => {
    lastTeamMessage.value = message;
    if (message.type === "incident.opened") {
      announce(`Incident ${message.row.number} opened: ${message.row.headline}`);
    }
  },
});

/** Since when the server does not answer, in words; null while it does. */
export const away = computed(() => {
  const { failure, fetchedAt, askingSince } = team;
  const newest = fetchedAt.value === null ? null : Math.max(fetchedAt.value, team.heardAt);
  return awayWords(failure.value, newest, askingSince.value, tick.value);
});

export const liveIncidents = computed(() => team.snapshot.value?.incidents ?? []);
/** The job as the team's stream has it now; undefined when it is not among the newest. */
export function liveJob(id: number): JobRow | undefined {
  return team.snapshot.value?.jobs.find((job) => job.id === id);
}

/** Those that wait for somebody: neither taken, nor silenced, nor part of another. */
export const openIncidents = computed(() =>
  liveIncidents.value.filter((row) => shownState(row, serverNow()) === "open"),
);
export const unresolvedIncidents = computed(() => liveIncidents.value.filter((row) => row.state !== "resolved"));

export async function startTeam(): Promise<void> {
  try {
    session.value = await readSession();
    sessionFailure.value = null;
  } catch (error) {
    sessionFailure.value = error as Error;
    return;
  }
  connection.start();
  connection.add(team);
}
