/*
 * What stands where a page's answer is missing. It asks again by itself, ever more slowly, and at once when the live
 * connection is back; what the server does not have is said once, with the way back.
 */

import { useEffect, useRef } from "preact/hooks";
import { ApiError } from "../api";
import { backoffMs, phase } from "../live/socket";
import { Empty } from "./bits";

interface FailureProps {
  error: Error;
  again?: () => void;
}

/** Refusals that asking again will not change; 408 and 429 ask for just that. */
export function isFinal(error: Error): boolean {
  return error instanceof ApiError && error.status >= 400 && error.status < 500 && ![408, 429].includes(error.status);
}

export function Failure({ error, again }: FailureProps) {
  const tries = again !== undefined && !isFinal(error);
  useRetry(error, tries ? again : undefined);
  if (error instanceof ApiError && error.status === 404) return <NotFound />;
  return (
    <div class="empty failure" role="alert">
      <p class="empty-title">This could not be loaded.</p>
      <p>{error instanceof ApiError && error.status > 0 ? error.message : "The server cannot be reached."}</p>
      {tries && (
        <>
          <p class="faint">It is tried again by itself.</p>
          <button type="button" onClick={again}>
            Try now
          </button>
        </>
      )}
    </div>
  );
}

export function NotFound() {
  return (
    <Empty title="There is nothing at this address.">
      <p>It does not exist, or it belongs to another team.</p>
      <p>
        <a href="/">Back to Now</a>
      </p>
    </Empty>
  );
}

/** Calls `again` after a growing wait, whenever it failed anew, and when the socket comes back. */
function useRetry(error: Error, again: (() => void) | undefined): void {
  const attempt = useRef(0);
  const latest = useRef(again);
  latest.current = again;
  const current = phase.value;
  const before = useRef(current);
  useEffect(() => {
    if (!latest.current) return;
    const timer = setTimeout(() => latest.current?.(), backoffMs(attempt.current, Math.random()));
    attempt.current += 1;
    return () => clearTimeout(timer);
  }, [error]);
  useEffect(() => {
    if (current === "live" && before.current !== "live") latest.current?.();
    before.current = current;
  }, [current]);
}
