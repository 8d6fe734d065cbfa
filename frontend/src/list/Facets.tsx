/* What the list shows, as choices with counts. Every choice is in the address; each count has all other filters applied. */

import type { Facets as Counts, Facet } from "../api";
import { STATE_WORD } from "../parts/bits";
import { query, setQuery } from "../state/address";
import type { ShownState } from "../state/status";
import { session } from "../state/team";
import { readable, SYMPTOM } from "../state/words";

const STATES: readonly (ShownState | "")[] = ["", "open", "acknowledged", "silenced", "attached", "resolved"];
/** Shown once there is anything in them. */
const RARE: readonly string[] = ["silenced", "attached"];
/** Of these an incident may have several. */
const SEVERAL: readonly Facet[] = ["node", "rack", "cluster"];

export function Facets({ counts }: { counts: Counts | undefined }) {
  const state = query.value.get("state") ?? "";
  const all = counts && sum(counts.state);
  const shown = (code: string) => (code ? counts && (counts.state[code] ?? 0) : all);
  const me = session.value?.user ?? "";
  return (
    <div class="facets">
      <fieldset class="segmented">
        <legend class="visually-hidden">State</legend>
        {STATES.filter((code) => !RARE.includes(code) || shown(code) || state === code).map((code) => (
          <button
            key={code}
            type="button"
            aria-pressed={state === code}
            onClick={() => setQuery({ state: code, cursor: null })}
          >
            {code ? STATE_WORD[code] : "All"} <span class="faint">{shown(code) ?? "–"}</span>
          </button>
        ))}
      </fieldset>
      <div class="facet-choices">
        <Choice facet="symptom" word="Symptom" counts={counts?.symptom} words={SYMPTOM} />
        <Choice facet="severity" word="Severity" counts={counts?.severity} words={{}} isReadable />
        <Choice facet="job" word="Job" counts={counts?.job} words={{}} />
        <Choice facet="who" word="Handled by" counts={counts?.who} words={{ [me]: `${me} (me)`, me: "me" }} />
        <Choice facet="node" word="Node" counts={counts?.node} words={{}} />
        <Choice facet="rack" word="Rack" counts={counts?.rack} words={{}} />
        <Choice facet="cluster" word="Cluster" counts={counts?.cluster} words={{}} />
        {Object.keys(session.value?.roles ?? {}).length > 1 && (
          <Choice facet="team" word="Team" counts={counts?.team} words={{}} />
        )}
      </div>
      {counts && SEVERAL.some((facet) => sum(counts[facet]) > sum(counts.symptom)) && (
        <p class="faint">
          An incident of several nodes, racks or clusters is counted for each; unknown: some of its nodes declare none.
        </p>
      )}
    </div>
  );
}

function sum(counts: Record<string, number> | undefined): number {
  return Object.values(counts ?? {}).reduce((total, n) => total + n, 0);
}

interface ChoiceProps {
  facet: Facet;
  word: string;
  counts: Record<string, number> | undefined;
  words: Record<string, string>;
  isReadable?: boolean;
}

function Choice({ facet, word, counts, words, isReadable = false }: ChoiceProps) {
  const chosen = query.value.get(facet) ?? "";
  const codes = [...new Set([...Object.keys(counts ?? {}), ...(chosen ? [chosen] : [])])];
  if (counts && codes.length === 0) return null;
  return (
    <label class={`facet ${chosen ? "is-chosen" : ""}`}>
      <span>{word}</span>
      <select value={chosen} onChange={(change) => setQuery({ [facet]: change.currentTarget.value, cursor: null })}>
        <option value="">any</option>
        {codes.map((code) => (
          <option key={code} value={code} selected={code === chosen}>
            {words[code] ?? (isReadable ? readable(code) : code)} ({counts ? (counts[code] ?? "–") : "–"})
          </option>
        ))}
      </select>
    </label>
  );
}
