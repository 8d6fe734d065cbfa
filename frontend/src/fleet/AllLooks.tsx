/* Every look of the trigger that is kept, page by page; or only those at which something was wrong. */

import { useEffect, useState } from "preact/hooks";
import { Loading } from "../parts/bits";
import { Failure } from "../parts/Failure";
import { LooksTable } from "../parts/LooksTable";
import type { Look } from "../types";
import { readLooks } from "./calls";
import "./fleet.css";

export function AllLooks({ id }: { id: number }) {
  const [looks, setLooks] = useState<Look[] | null>(null);
  const [older, setOlder] = useState<number | null>(null);
  const [isOdd, setOdd] = useState(false);
  const [failure, setFailure] = useState<Error | null>(null);
  const load = async (before: number | null) => {
    const asked = new URLSearchParams(isOdd ? { saw_something: "true" } : {});
    if (before !== null) asked.set("before", String(before));
    try {
      const answer = await readLooks(id, `?${asked}`);
      setLooks((had) => (before === null ? answer.looks : [...(had ?? []), ...answer.looks]));
      setOlder(answer.older);
      setFailure(null);
    } catch (error) {
      setFailure(error as Error);
    }
  };
  useEffect(() => void load(null), [id, isOdd]);
  return (
    <>
      <div class="look-tools">
        <label>
          <input type="checkbox" checked={isOdd} onChange={(change) => setOdd(change.currentTarget.checked)} /> only
          looks that saw something
        </label>
        <button type="button" onClick={() => void load(null)}>
          Newest
        </button>
        <span class="faint">Looks are kept for two days, the newest thousand.</span>
      </div>
      {failure && <Failure error={failure} again={() => void load(null)} />}
      {!looks && !failure && <Loading what="looks" />}
      {looks && <LooksTable looks={looks} />}
      {older !== null && (
        <button type="button" onClick={() => void load(older)}>
          Older looks
        </button>
      )}
    </>
  );
}
