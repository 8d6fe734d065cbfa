/*
 * The topology grid: one cell per rank, with its legend, its order, and a table that says the same.
 */

import type { ComponentChildren } from "preact";
import { ageOfGrid } from "../live/topology";
import { pinnedMoment, query, setQuery } from "../state/address";
import { serverNow, spanWords, tick } from "../state/clock";
import { RANK_STATE } from "../state/words";
import type { GridColumns } from "../types";
import { GridTable } from "./GridTable";
import { ColourSwitch, LayerLegend } from "./LayerLegend";
import { hasExperts, hasPlaces, hasRacks, type Order } from "./layout";
import type { Source } from "./past";
import { RankCanvas } from "./RankCanvas";
import { useLayer } from "./useLayer";
import { countsByState } from "./words";

interface TopologyGridProps {
  columns: GridColumns;
  selected: number | null;
  onSelect: (rank: number | null) => void;
  /** Of an earlier moment, which. */
  when?: string;
  /** Of what the layers are asked: "incidents/12" or "jobs/3"; without it there are none. */
  source?: Source;
}

export function TopologyGrid({ columns, selected, onSelect, when, source = "" }: TopologyGridProps) {
  const shown = useLayer(source, pinnedMoment());
  const { layer } = shown;
  const asTable = query.value.get("grid") === "table";
  const order = orderShown();
  return (
    <section class="panel" aria-labelledby="topology">
      <div class="panel-head">
        <h2 id="topology">Topology</h2>
        <span class="faint">
          {columns.rank.length.toLocaleString("en-US")} ranks on {columns.nodes.length.toLocaleString("en-US")} nodes
          {columns.inferred && hasPlaces(columns) ? " · parallel places inferred" : ""}
          {when ? ` · ${when}` : ""}
          <OldGrid source={source} when={when} at={columns.at} />
        </span>
        <div class="panel-tools">
          {source && <ColourSwitch by={shown.by} />}
          <OrderSwitch columns={columns} />
          <button type="button" aria-pressed={asTable} onClick={() => setQuery({ grid: asTable ? null : "table" })}>
            View as table
          </button>
        </div>
      </div>
      {shown.by && <LayerLegend shown={shown} columns={columns} />}
      {!layer && <Legend columns={columns} />}
      {asTable ? (
        <GridTable columns={columns} selected={selected} onSelect={onSelect} layer={layer} />
      ) : (
        <RankCanvas columns={columns} order={order} selected={selected} onSelect={onSelect} layer={layer} />
      )}
    </section>
  );
}

/** One order for every grid of a page: it is in the address. */
export function orderShown(): Order {
  const asked = query.value.get("order");
  return asked === "parallel" || asked === "rack" ? asked : "node";
}

const NO_RACK = "No agent of this job declares its rack (DIOGENES_RACK)";

/** The orders that say something of these ranks; none where there is only one. */
export function OrderSwitch({ columns }: { columns: GridColumns }) {
  const [withRacks, withPlaces] = [hasRacks(columns), hasPlaces(columns)];
  const asked = orderShown();
  const order = asked === "rack" && !withRacks ? "node" : asked;
  if (!columns.racks && !withPlaces) return null;
  return (
    <fieldset class="segmented small">
      <legend class="visually-hidden">Order</legend>
      {columns.racks && (
        <OrderButton is={order === "rack"} order="rack" disabled={!withRacks} title={withRacks ? "" : NO_RACK}>
          By rack
        </OrderButton>
      )}
      <OrderButton is={order === "node"} order={null}>
        By node
      </OrderButton>
      {withPlaces && (
        <OrderButton is={order === "parallel"} order="parallel">
          TP × PP × DP{hasExperts(columns) ? " × EP" : ""}
        </OrderButton>
      )}
    </fieldset>
  );
}

interface OrderButtonProps {
  is: boolean;
  order: Order | null;
  disabled?: boolean;
  title?: string;
  children: ComponentChildren;
}

function OrderButton({ is, order, disabled, title, children }: OrderButtonProps) {
  return (
    <button type="button" aria-pressed={is} disabled={disabled} title={title} onClick={() => setQuery({ order })}>
      {children}
    </button>
  );
}

const OLD_MS = 10_000;

/** While nobody draws the grid anew, the page is not as live as its mark says. A job's is read each time it is asked for. */
function OldGrid({ source, when, at }: { source: Source; when?: string; at: string }) {
  const number = /^incidents\/(\d+)$/.exec(source)?.[1];
  const ofJob = source.startsWith("jobs/") ? serverNow() - Date.parse(at) : null;
  const age = when ? null : number ? ageOfGrid(Number(number), tick.value) : ofJob;
  return age !== null && age > OLD_MS ? <strong class="scrubber-doubt"> · drawn {spanWords(age)} ago</strong> : null;
}

function Legend({ columns }: { columns: GridColumns }) {
  return (
    <ul class="legend" aria-label="States of the ranks">
      {countsByState(columns)
        .filter(({ n }) => n > 0)
        .map(({ state, n }) => (
          <li key={state} title={RANK_STATE[state]?.meaning}>
            <i class={`swatch swatch-${state}`} aria-hidden="true" />
            {RANK_STATE[state]?.word ?? state} <b>{n.toLocaleString("en-US")}</b>
          </li>
        ))}
    </ul>
  );
}
