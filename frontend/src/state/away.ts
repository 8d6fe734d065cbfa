/*
 * That the server does not answer, in words: who does not, and since when. What the page shows is from then, and says so
 * whatever the socket does: it can live on while the database is away.
 */

import { ApiError, clockSkewMs } from "../api";
import { timeOfDay, zoneLabel } from "./clock";

/** An answer that takes longer than the next question is none. */
const LATE_MS = 5000;

/**
 * "The database does not answer since 18:09:56 UTC."; null while answers come, or when there was none to go on showing.
 * Times are this browser's, ms: the newest good answer, and since when the next is waited for.
 */
export function awayWords(
  failure: Error | null,
  answeredAt: number | null,
  askingSince: number | null,
  nowMs: number,
): string | null {
  const isLate = askingSince !== null && nowMs - askingSince > LATE_MS;
  if (answeredAt === null || (failure === null && !isLate)) return null;
  return `${whoIsAway(failure)} since ${timeOfDay(answeredAt + clockSkewMs)} ${zoneLabel()}.`;
}

function whoIsAway(failure: Error | null): string {
  if (!(failure instanceof ApiError) || failure.status === 0) return "The server does not answer";
  if (failure.code === "database_away") return "The database does not answer";
  return failure.status >= 500 ? "The server does not answer as it should" : "The server refuses to answer";
}
