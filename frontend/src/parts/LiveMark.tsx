/*
 * Says whether the page is live, from the page's own count of silence. Stale is said loudly: numbers that stopped
 * moving look exactly like a job that stopped moving.
 */

import { lastFrameAt, type Phase, phase } from "../live/socket";
import { spanWords, tick } from "../state/clock";

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
  const stale = phase.value === "stale";
  return (
    <span class={`live live-${phase.value}`} title="From this page's own heartbeat: 3 s of silence is stale.">
      <i aria-hidden="true" />
      {WORD[phase.value]}
      {stale && ` ${silence()}`}
    </span>
  );
}

export function StaleBanner() {
  if (phase.value !== "stale") return null;
  return (
    <div class="stale-banner" role="status">
      No live connection{lastFrameAt.value === null ? "" : ` for ${silence()}`}. What you see is fetched every 5 seconds
      while the page reconnects.
    </div>
  );
}
