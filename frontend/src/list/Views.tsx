/* Saved views: the list's filters under a name, one's own or the team's. A view is a link; saving replaces its namesake. */

import { useState } from "preact/hooks";
import { deleteView, readViews, saveView, type ViewRow } from "../handling";
import { Dialog, Missing } from "../parts/Dialog";
import { useAnswer } from "../parts/useAnswer";
import { Refused, useSaying } from "../parts/useSaying";
import { query } from "../state/address";
import { filtersOf } from "../state/list";
import { notify, settle } from "../state/notices";
import { mayAct } from "../state/team";

export function Views() {
  const { value, again } = useAnswer("views", readViews);
  const [naming, setNaming] = useState(false);
  const filters = filtersOf(query.value);
  const views = value?.views ?? [];
  const forget = (view: ViewRow) =>
    void deleteView(view.id).then(
      () => {
        settle("views");
        again();
      },
      (error: Error) => notify(error.message, "bad", "views"),
    );
  if (views.length === 0 && !filters) return null;
  return (
    <nav class="views" aria-label="Saved views">
      {views.map((view) => (
        <span key={view.id} class="view">
          <a
            href={`/incidents${view.query ? `?${view.query}` : ""}`}
            aria-current={filtersOf(new URLSearchParams(view.query)) === filters ? "page" : undefined}
            title={view.shared ? "The team's view" : "Your view"}
          >
            {view.name}
          </a>
          {view.mine && (
            <button
              type="button"
              class="quiet"
              aria-label={`Delete the view ${view.name}`}
              onClick={() => forget(view)}
            >
              ×
            </button>
          )}
        </span>
      ))}
      {filters && (
        <button type="button" class="quiet" onClick={() => setNaming(true)}>
          Save this view …
        </button>
      )}
      {naming && <NameDialog filters={filters} onClose={() => setNaming(false)} onSaved={again} />}
    </nav>
  );
}

function NameDialog({ filters, onClose, onSaved }: { filters: string; onClose: () => void; onSaved: () => void }) {
  const [name, setName] = useState("");
  const [shared, setShared] = useState(false);
  const { busy, refused, say } = useSaying(onClose);
  const save = async () => {
    await saveView(name.trim(), filters, shared);
    settle("views");
    onSaved();
  };
  return (
    <Dialog title="Save this view" onClose={onClose}>
      <form
        onSubmit={(submit) => {
          submit.preventDefault();
          if (name.trim()) void say(save);
        }}
      >
        <label for="view-name">Name</label>
        <input
          id="view-name"
          required
          maxLength={60}
          value={name}
          onInput={(input) => setName(input.currentTarget.value)}
        />
        {mayAct.value && (
          <label class="check">
            <input type="checkbox" checked={shared} onChange={(change) => setShared(change.currentTarget.checked)} />
            For the whole team
          </label>
        )}
        <Refused words={refused} />
        <div class="dialog-actions">
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <Missing what={[!name.trim() && "a name"]} />
          <button type="submit" class="primary" disabled={busy || !name.trim()}>
            Save
          </button>
        </div>
      </form>
    </Dialog>
  );
}
