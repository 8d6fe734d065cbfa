/*
 * The topology grid: one cell per rank. The canvas is decoration for assistive technology; beside it stands a
 * focusable grid with one cell cursor, arrow keys and a spoken sentence, and a table that says the same.
 */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { useWidth } from "../parts/useWidth";
import { query, setQuery } from "../state/address";
import { pointAt, pointedRanks } from "../state/pointed";
import { paletteVersion } from "../state/theme";
import { RANK_STATE } from "../state/words";
import type { GridColumns } from "../types";
import { GridTable } from "./GridTable";
import { cellAt, cellBeside, type Direction, type GridLayout, hasPlaces, layoutGrid, type Order } from "./layout";
import { paintGrid, paintMarks, RING_ROOM_PX } from "./paint";
import { cellSentence, cellWords, countsByState } from "./words";

interface TopologyGridProps {
  columns: GridColumns;
  selected: number | null;
  onSelect: (rank: number | null) => void;
}

export function TopologyGrid({ columns, selected, onSelect }: TopologyGridProps) {
  const asTable = query.value.get("grid") === "table";
  const order: Order = query.value.get("order") === "parallel" ? "parallel" : "node";
  return (
    <section class="panel" aria-labelledby="topology">
      <div class="panel-head">
        <h2 id="topology">Topology</h2>
        <span class="faint">
          {columns.rank.length.toLocaleString("en-US")} ranks on {columns.nodes.length.toLocaleString("en-US")} nodes
          {columns.inferred && hasPlaces(columns) ? " · parallel places inferred" : ""}
        </span>
        <div class="panel-tools">
          {hasPlaces(columns) && (
            <fieldset class="segmented small">
              <legend class="visually-hidden">Order</legend>
              <button type="button" aria-pressed={order === "node"} onClick={() => setQuery({ order: null })}>
                By node
              </button>
              <button type="button" aria-pressed={order === "parallel"} onClick={() => setQuery({ order: "parallel" })}>
                TP × PP × DP
              </button>
            </fieldset>
          )}
          <button type="button" aria-pressed={asTable} onClick={() => setQuery({ grid: asTable ? null : "table" })}>
            View as table
          </button>
        </div>
      </div>
      <Legend columns={columns} />
      {asTable ? (
        <GridTable columns={columns} selected={selected} onSelect={onSelect} />
      ) : (
        <Canvas columns={columns} order={order} selected={selected} onSelect={onSelect} />
      )}
    </section>
  );
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

const ARROWS: Record<string, Direction> = {
  ArrowLeft: "left",
  ArrowRight: "right",
  ArrowUp: "up",
  ArrowDown: "down",
};

function Canvas({ columns, order, selected, onSelect }: TopologyGridProps & { order: Order }) {
  const [box, width] = useWidth<HTMLDivElement>();
  const canvas = useRef<HTMLCanvasElement>(null);
  const marked = useRef<HTMLCanvasElement>(null);
  const [hovered, setHovered] = useState(-1);
  const [cursor, setCursor] = useState(-1);
  const layout = useMemo(() => layoutGrid(columns, order, Math.max(60, width - 12)), [columns, order, width]);
  const chosen = selected === null ? -1 : columns.rank.indexOf(selected);
  const palette = paletteVersion.value;
  useEffect(() => {
    if (canvas.current && width > 0) paintGrid(canvas.current, layout, columns);
  }, [layout, columns, palette, width]);
  const pointed = pointedRanks.value;
  useEffect(() => {
    const cells = cursor >= 0 ? [cursor] : cellsOf(columns, pointed);
    if (marked.current && width > 0) paintMarks(marked.current, layout, { selected: chosen, pointed: cells });
  }, [layout, chosen, pointed, cursor, palette, width]);
  const point = (cell: number) => {
    setHovered(cell);
    pointAt(isCell(columns, cell) ? [columns.rank[cell]] : []);
  };

  const cellUnder = (pointer: PointerEvent | MouseEvent) => {
    const at = canvas.current?.getBoundingClientRect();
    return at ? cellAt(layout, pointer.clientX - at.left - RING_ROOM_PX, pointer.clientY - at.top - RING_ROOM_PX) : -1;
  };
  const toggle = (cell: number) => onSelect(cell < 0 || columns.rank[cell] === selected ? null : columns.rank[cell]);
  const press = (key: KeyboardEvent) => {
    const from = cursor >= 0 ? cursor : Math.max(0, chosen);
    const next = moved(layout, from, key.key);
    if (next !== null) setCursor(next);
    else if (key.key === "Enter" || key.key === " ") toggle(from);
    else return;
    key.preventDefault();
  };
  const shown = cursor >= 0 ? cursor : hovered;
  return (
    <div class="grid-box" ref={box}>
      {/* biome-ignore lint/a11y/useSemanticElements: a canvas cannot be a table; the table twin is one click away */}
      <div
        class="grid-overlay"
        role="grid"
        tabIndex={0}
        aria-label="Ranks. Arrow keys move, Enter selects."
        aria-activedescendant="grid-cell"
        onKeyDown={press}
        onFocus={() => cursor < 0 && setCursor(Math.max(0, chosen))}
        onBlur={() => setCursor(-1)}
        onPointerMove={(pointer) => point(cellUnder(pointer))}
        onPointerLeave={() => point(-1)}
        onPointerDown={(pointer) => pointer.preventDefault()}
        onClick={(click) => toggle(cellUnder(click))}
      >
        <canvas ref={canvas} aria-hidden="true" />
        <canvas ref={marked} class="marks" aria-hidden="true" />
        <ActiveCell columns={columns} cell={cursor} chosen={chosen} />
      </div>
      <p class="visually-hidden" aria-live="polite">
        {isCell(columns, cursor) ? cellSentence(columns, cursor) : ""}
      </p>
      {isCell(columns, shown) && <Tooltip columns={columns} cell={shown} layout={layout} />}
    </div>
  );
}

function cellsOf(columns: GridColumns, ranks: ReadonlySet<number>): number[] {
  return ranks.size === 0 ? [] : columns.rank.flatMap((rank, cell) => (ranks.has(rank) ? [cell] : []));
}

/** A newer grid may have fewer ranks than the one the cursor was placed in. */
function isCell(columns: GridColumns, cell: number): boolean {
  return cell >= 0 && cell < columns.rank.length;
}

/** The one cell assistive technology finds in the grid: the one under the cursor. */
function ActiveCell({ columns, cell, chosen }: { columns: GridColumns; cell: number; chosen: number }) {
  return (
    // biome-ignore lint/a11y/useSemanticElements: a canvas cannot be a table; the table twin is one click away
    // biome-ignore lint/a11y/useFocusableInteractive: the grid holds the focus and names its active cell
    <div role="row" class="visually-hidden">
      {/* biome-ignore lint/a11y/useSemanticElements: see above */}
      {/* biome-ignore lint/a11y/useFocusableInteractive: see above */}
      <div role="gridcell" id="grid-cell" aria-selected={cell >= 0 && cell === chosen}>
        {isCell(columns, cell) ? cellSentence(columns, cell) : `${columns.rank.length} ranks`}
      </div>
    </div>
  );
}

function moved(layout: GridLayout, from: number, key: string): number | null {
  if (key in ARROWS) return cellBeside(layout, from, ARROWS[key]);
  if (key === "Home") return 0;
  if (key === "End") return layout.x.length - 1;
  return null;
}

function Tooltip({ columns, cell, layout }: { columns: GridColumns; cell: number; layout: GridLayout }) {
  const words = cellWords(columns, cell);
  const right = layout.x[cell] > layout.width / 2;
  const style = {
    top: `${layout.y[cell] + layout.size + 10}px`,
    left: right ? "auto" : `${layout.x[cell]}px`,
    right: right ? `${Math.max(0, layout.width - layout.x[cell] - layout.size)}px` : "auto",
  };
  return (
    <div class="tooltip" style={style} aria-hidden="true">
      <p>
        <b>Rank {words.rank}</b> <i class={`swatch swatch-${words.state}`} /> {words.stateWord}
      </p>
      <p>{words.place}</p>
      {words.coordinates && <p>{words.coordinates}</p>}
      {columns.nic[cell] && <p>{columns.nic[cell]}</p>}
      {words.note && <p class="tooltip-note">{words.note}</p>}
      <p class="faint">{words.seen}</p>
    </div>
  );
}
