/*
 * Says whether the page is live: from its own count of silence on the socket, and from whether the server answers. Stale
 * is said loudly: numbers that stopped moving look exactly like a job that stopped moving.
 */

import { lastFrameAt, type Phase, phase } from "../live/socket";
import { spanWords, tick } from "../state/clock";
import { away } from "../state/team";

const WORD: Record<Phase, string> = {
  connecting: "Connecting",
  live: "Live",
  reconnecting: "Reconnecting",
  stale: "Stale",
};

function silence(): string {
  return lastFrameAt.value === null ? "" : spanWords(Math.max(0, tick.value - lastFrameAt.value));
}

export function LiveMark() {
  const seen: Phase = away.value ? "stale" : phase.value;
  return (
    <span
      class={`live live-${seen}`}
      title="From this page's own heartbeat: 3 s of silence, or a server that does not answer, is stale."
    >
      <i aria-hidden="true" />
      {WORD[seen]}
      {phase.value === "stale" && <span class="wide-only">{silence()}</span>}
    </span>
  );
}

export function StaleBanner() {
  if (away.value) {
    return (
      <div class="stale-banner" role="status">
        {away.value} What you see is from then. The page asks again every 5 seconds.
      </div>
    );
  }
  if (phase.value !== "stale") return null;
  return (
    <div class="stale-banner" role="status">
      No live connection{lastFrameAt.value === null ? "" : ` for ${silence()}`}. What you see is fetched every 5 seconds
      while the page reconnects.
    </div>
  );
}
