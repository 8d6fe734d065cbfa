/* Who made, changed or removed a destination, newest first. Names of what changed are kept, values never. */

import { Ago, Loading } from "../parts/bits";
import { Dialog } from "../parts/Dialog";
import { Failure } from "../parts/Failure";
import { useAnswer } from "../parts/useAnswer";
import { readable } from "../state/words";
import { type DestinationRow, readHistory } from "./calls";

export function History({ row, onClose }: { row: DestinationRow; onClose: () => void }) {
  const { value, failure, again } = useAnswer(`history ${row.id}`, () => readHistory(row.id));
  return (
    <Dialog title={`History of ${row.name}`} onClose={onClose}>
      {failure && <Failure error={failure} again={again} />}
      {!value && !failure && <Loading what="the history" />}
      {value?.changes.length === 0 && <p class="faint">Made before changes were kept.</p>}
      {value && value.changes.length > 0 && (
        <ol class="history">
          {value.changes.map((one) => (
            <li key={`${one.at} ${one.act}`}>
              <b>{one.actor}</b> {one.actor_kind === "api" && <span class="tag">by a token</span>} {one.act} it{" "}
              <span class="faint">
                <Ago at={one.at} />
              </span>
              {one.changed.length > 0 && <div class="faint">{one.changed.map(readable).join(", ")}</div>}
            </li>
          ))}
        </ol>
      )}
      <p class="faint">Values are not kept, so that no secret is.</p>
      <div class="dialog-actions">
        <button type="button" onClick={onClose}>
          Close
        </button>
      </div>
    </Dialog>
  );
}
