/* Says what of the address was ignored: a link that is half wrong must not look like what it was meant to show. */

import { setQuery, unreadable } from "../state/address";

interface IgnoredProps {
  /** How many ranks there are, where that is known. */
  nRanks?: number;
  rank?: number | null;
}

export function Ignored({ nRanks, rank = null }: IgnoredProps) {
  const parts = unreadable();
  const isOutside = nRanks !== undefined && rank !== null && rank >= nRanks;
  if (parts.length === 0 && !isOutside) return null;
  const keys = [...parts.map((part) => part.split("=")[0]), ...(isOutside ? ["rank"] : [])];
  return (
    <p class="pinned-time" role="status">
      {parts.length > 0 && `The address asks for ${parts.join(", ")}, which cannot be read: ignored.`}
      {isOutside && `The address asks for rank ${rank}, but the job has ${nRanks}: ranks 0 to ${nRanks - 1}.`}
      <button type="button" onClick={() => setQuery(Object.fromEntries(keys.map((key) => [key, null])))}>
        Drop it
      </button>
    </p>
  );
}
