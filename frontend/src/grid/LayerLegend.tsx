/* Which layer colours the grid, and its legend: scale or classes, how many are unknown, when and how it was measured. */

import { pinnedMoment, setQuery } from "../state/address";
import { ageWords, serverNow, timeOfDay, zoneLabel } from "../state/clock";
import { RANK_STATE } from "../state/words";
import type { GridColumns } from "../types";
import { type By, classMark, LAYER_WORD, type Layer, LEVELS, legendWords, UNHEARD } from "./layers";
import type { LayerShown } from "./useLayer";
import { countsByState } from "./words";

export function ColourSwitch({ by }: { by: By | null }) {
  return (
    <label class="colour-by">
      <span>Colour</span>
      <select
        aria-label="Colour by"
        value={by ?? "state"}
        onChange={(change) => {
          const chosen = (change.target as HTMLSelectElement).value;
          setQuery({ colour: chosen === "state" ? null : chosen });
        }}
      >
        <option value="state">State</option>
        {Object.entries(LAYER_WORD).map(([one, word]) => (
          <option key={one} value={one}>
            {word}
          </option>
        ))}
      </select>
    </label>
  );
}

interface LayerLegendProps {
  shown: LayerShown;
  columns: GridColumns;
}

export function LayerLegend({ shown, columns }: LayerLegendProps) {
  const { by, layer, failure, isCurrent } = shown;
  if (!by) return null;
  if (!layer) {
    const said = failure ? `${LAYER_WORD[by]}: ${failure}` : `${LAYER_WORD[by]} is being read …`;
    return (
      <p class={failure ? "warning" : "faint layer-said"} role="status">
        {said} Until then the states are shown.
      </p>
    );
  }
  return (
    <div class="layer-legend">
      <ul class="legend" aria-label={`${LAYER_WORD[by]} of the ranks`}>
        {by === "stack_class" ? <Classes layer={layer} /> : <Scale layer={layer} />}
        {layer.n_unknown > 0 && (
          <li title="of whom nothing is known">
            <i class="swatch swatch-unknown" aria-hidden="true" /> Unknown{" "}
            <b>{layer.n_unknown.toLocaleString("en-US")}</b>
          </li>
        )}
        <StatesKept columns={columns} />
      </ul>
      <p class="faint layer-said" role="status">
        {layer.nothing ? <b>{sentence(layer.nothing)}</b> : measuredWords(layer)}
        <OldLayer layer={layer} />
        {!isCurrent && !failure && " Another moment is being read."}
        {failure && <strong class="scrubber-doubt"> Not read again: {failure}</strong>}
      </p>
    </div>
  );
}

/** What is drawn over the layer's colours: rings of culprits and suspects, hatches of those of whom nothing is heard. */
function StatesKept({ columns }: { columns: GridColumns }) {
  const kept = countsByState(columns).filter(({ state, n }) => n > 0 && [...RINGED, ...UNHEARD].includes(state));
  return (
    <>
      {kept.map(({ state, n }) => (
        <li key={state} title={RANK_STATE[state]?.meaning}>
          <i class={`swatch swatch-${RINGED.includes(state) ? `ringed-${state}` : state}`} aria-hidden="true" />{" "}
          {state === "unknown" ? "Not heard" : RANK_STATE[state]?.word} <b>{n.toLocaleString("en-US")}</b>
        </li>
      ))}
    </>
  );
}

const RINGED: readonly string[] = ["culprit", "suspect"];
const OLD_MS = 30_000;

/** Of what goes on: what was measured long ago must not look like now. */
function OldLayer({ layer }: { layer: Layer }) {
  if (layer.at === null || layer.is_settled || pinnedMoment() !== null) return null;
  const age = serverNow() - Date.parse(layer.at);
  return age > OLD_MS ? <strong class="scrubber-doubt"> Measured {ageWords(age)}.</strong> : null;
}

function Scale({ layer }: { layer: Layer }) {
  const { low, middle, high, full } = layer;
  if (low === null || middle === null || high === null || full === null) return null;
  return (
    <>
      <li class="layer-scale">
        {low < 0 ? "≤ 0" : "0"}
        <span aria-hidden="true">
          {Array.from({ length: full > 0 ? LEVELS : 1 }, (_, level) => (
            <i key={level} class={`swatch swatch-level-${level}`} />
          ))}
        </span>
        {full > 0 && legendWords(layer, full)}
      </li>
      <li>
        least <b>{legendWords(layer, low)}</b>
      </li>
      <li>
        median <b>{legendWords(layer, middle)}</b>
      </li>
      <li>
        most <b>{legendWords(layer, high)}</b>
      </li>
    </>
  );
}

const CLASSES_SHOWN = 7;

function Classes({ layer }: { layer: Layer }) {
  const all = layer.classes.map((one, place) => ({ ...one, mark: classMark(layer, place) }));
  const shown = all.length <= CLASSES_SHOWN ? all : [...all.slice(0, CLASSES_SHOWN - 2), ...all.filter(isMost)];
  const others = all.filter((one) => !shown.includes(one));
  return (
    <>
      {shown.map(({ said, n_ranks, is_most, mark }) => (
        <li key={said + mark} title={said}>
          <i class={`swatch swatch-${mark}`} aria-hidden="true" />
          <span class="layer-class">
            {is_most ? "As most: " : ""}
            {said}
          </span>
          <b>{n_ranks.toLocaleString("en-US")}</b>
        </li>
      ))}
      {others.length > 0 && (
        <li>
          <i class="swatch swatch-class-6" aria-hidden="true" /> {others.length} more classes
          <b>{others.reduce((n, one) => n + one.n_ranks, 0).toLocaleString("en-US")}</b>
        </li>
      )}
    </>
  );
}

const isMost = ({ is_most }: { is_most: boolean }) => is_most;

function measuredWords({ at, until, says }: Layer): string {
  if (at === null) return says;
  const last = until === null ? "" : ` to ${timeOfDay(Date.parse(until))}`;
  return `As at ${timeOfDay(Date.parse(at))}${last} ${zoneLabel()}. ${says}`;
}

function sentence(words: string): string {
  return `${words.charAt(0).toUpperCase()}${words.slice(1)}.`;
}
