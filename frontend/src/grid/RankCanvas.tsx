/*
 * Ranks as cells on a canvas: of the topology, and of stacks. The canvas is decoration for assistive technology; over it
 * lies a focusable grid with one cell cursor, arrow keys and a spoken sentence.
 */

import { useId, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { useWidth } from "../parts/useWidth";
import { pointAt, pointedRanks } from "../state/pointed";
import { paletteVersion } from "../state/theme";
import type { GridColumns } from "../types";
import { LAYER_WORD, type Layer, paintedBy } from "./layers";
import { cellAt, cellBeside, type Direction, type GridLayout, layoutGrid, type Order } from "./layout";
import { paintGrid, paintMarks, RING_ROOM_PX } from "./paint";
import { useZoom } from "./useZoom";
import { cellSentence, cellWords } from "./words";
import { ZoomTools, zoomKey } from "./ZoomTools";
import { isInSight } from "./zoom";

const ARROWS: Record<string, Direction> = {
  ArrowLeft: "left",
  ArrowRight: "right",
  ArrowUp: "up",
  ArrowDown: "down",
};

interface RankCanvasProps {
  columns: GridColumns;
  order: Order;
  selected: number | null;
  onSelect: (rank: number | null) => void;
  /** What colours the cells instead of their states. */
  layer?: Layer | null;
}

export function RankCanvas({ columns, order, selected, onSelect, layer = null }: RankCanvasProps) {
  const [box, width] = useWidth<HTMLDivElement>();
  const cellId = useId();
  const canvas = useRef<HTMLCanvasElement>(null);
  const marked = useRef<HTMLCanvasElement>(null);
  const [hovered, setHovered] = useState(-1);
  const [cursor, setCursor] = useState(-1);
  // Not the states: while somebody drags the time they change many times a second, the places do not.
  const { rank, node, nodes, racks, local_rank, tp, pp, dp, ep } = columns;
  const layout = useMemo(
    () => layoutGrid(columns, order, Math.max(60, width - 12)),
    [rank, node, nodes, racks, local_rank, tp, pp, dp, ep, order, width],
  );
  const chosen = selected === null ? -1 : columns.rank.indexOf(selected);
  const zoom = useZoom(layout, cursor >= 0 ? cursor : chosen);
  const drawn = zoom.drawn;
  const palette = paletteVersion.value;
  const painted = useMemo(() => (layer ? paintedBy(columns, layer) : null), [columns, layer]);
  useLayoutEffect(() => {
    if (!canvas.current || width <= 0) return;
    if (painted) paintGrid(canvas.current, drawn, painted, columns);
    else paintGrid(canvas.current, drawn, columns);
  }, [drawn, columns, painted, palette, width]);
  const pointed = pointedRanks.value;
  useLayoutEffect(() => {
    const cells = cursor >= 0 ? [cursor] : cellsOf(columns, pointed);
    if (marked.current && width > 0) paintMarks(marked.current, drawn, { selected: chosen, pointed: cells });
  }, [drawn, chosen, pointed, cursor, palette, width]);
  const point = (cell: number) => {
    setHovered(cell);
    pointAt(isCell(columns, cell) ? [columns.rank[cell]] : []);
  };

  const cellUnder = (pointer: PointerEvent | MouseEvent) => {
    const at = canvas.current?.getBoundingClientRect();
    return at ? cellAt(drawn, pointer.clientX - at.left - RING_ROOM_PX, pointer.clientY - at.top - RING_ROOM_PX) : -1;
  };
  const toggle = (cell: number) => onSelect(cell < 0 || columns.rank[cell] === selected ? null : columns.rank[cell]);
  const press = (key: KeyboardEvent) => {
    const from = cursor >= 0 ? cursor : Math.max(0, chosen);
    const next = moved(layout, from, key.key);
    if (next !== null) setCursor(next);
    else if (zoomKey(key, zoom, from)) setHovered(-1);
    else if (key.key === "Enter" || key.key === " ") toggle(from);
    else return;
    key.preventDefault();
  };
  const shown = cursor >= 0 ? cursor : hovered;
  return (
    <div class="grid-box" ref={box}>
      {/* biome-ignore lint/a11y/useSemanticElements: a canvas cannot be a table; the table twin is one click away */}
      <div
        class={`grid-overlay ${zoom.times > 1 ? "zoomed" : ""}`}
        style={zoom.times > 1 ? { height: `${drawn.height + 2 * RING_ROOM_PX}px` } : {}}
        ref={zoom.port}
        onScroll={zoom.scrolled}
        role="grid"
        tabIndex={0}
        aria-label="Ranks. Arrow keys move, Enter selects, plus and minus zoom."
        aria-activedescendant={cellId}
        onKeyDown={press}
        onFocus={() => cursor < 0 && setCursor(Math.max(0, chosen))}
        onBlur={() => setCursor(-1)}
        onPointerMove={(pointer) => point(cellUnder(pointer))}
        onPointerLeave={() => point(-1)}
        onPointerDown={(pointer) => {
          pointer.preventDefault();
          zoom.hold(pointer);
        }}
        onClick={(click) => !zoom.hasDragged() && toggle(cellUnder(click))}
      >
        <div class="grid-room" style={roomOf(layout, zoom.times)}>
          <div class="grid-sight">
            <canvas ref={canvas} aria-hidden="true" />
            <canvas ref={marked} class="marks" aria-hidden="true" />
          </div>
        </div>
        <ActiveCell id={cellId} columns={columns} cell={cursor} chosen={chosen} layer={layer} />
      </div>
      <ZoomTools zoom={zoom} />
      <p class="visually-hidden" aria-live="polite">
        {isCell(columns, cursor) ? cellSentence(columns, cursor, layer) : ""}
      </p>
      {isCell(columns, shown) && (!drawn.of || isInSight(drawn, shown)) && (
        <Tooltip columns={columns} cell={shown} layout={drawn} layer={layer} />
      )}
    </div>
  );
}

/** As large as the whole grid, so that the browser scrolls it; what is in sight is drawn anew. */
function roomOf({ width, height }: GridLayout, times: number) {
  if (times === 1) return {};
  return { width: `${width * times + 2 * RING_ROOM_PX}px`, height: `${height * times + 2 * RING_ROOM_PX}px` };
}

function cellsOf(columns: GridColumns, ranks: ReadonlySet<number>): number[] {
  return ranks.size === 0 ? [] : columns.rank.flatMap((rank, cell) => (ranks.has(rank) ? [cell] : []));
}

/** A newer grid may have fewer ranks than the one the cursor was placed in. */
function isCell(columns: GridColumns, cell: number): boolean {
  return cell >= 0 && cell < columns.rank.length;
}

interface ActiveCellProps {
  id: string;
  columns: GridColumns;
  cell: number;
  chosen: number;
  layer: Layer | null;
}

/** The one cell assistive technology finds in the grid: the one under the cursor. */
function ActiveCell({ id, columns, cell, chosen, layer }: ActiveCellProps) {
  return (
    // biome-ignore lint/a11y/useSemanticElements: a canvas cannot be a table; the table twin is one click away
    // biome-ignore lint/a11y/useFocusableInteractive: the grid holds the focus and names its active cell
    <div role="row" class="visually-hidden">
      {/* biome-ignore lint/a11y/useSemanticElements: see above */}
      {/* biome-ignore lint/a11y/useFocusableInteractive: see above */}
      <div role="gridcell" id={id} aria-selected={cell >= 0 && cell === chosen}>
        {isCell(columns, cell) ? cellSentence(columns, cell, layer) : `${columns.rank.length} ranks`}
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

interface TooltipProps {
  columns: GridColumns;
  cell: number;
  layout: GridLayout;
  layer: Layer | null;
}

function Tooltip({ columns, cell, layout, layer }: TooltipProps) {
  const words = cellWords(columns, cell, layer);
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
      {layer && (
        <p>
          {LAYER_WORD[layer.by]}: <b>{words.value}</b>
        </p>
      )}
      <p>{words.place}</p>
      {words.coordinates && <p>{words.coordinates}</p>}
      {columns.nic?.[cell] && <p>{columns.nic[cell]}</p>}
      {words.note && <p class="tooltip-note">{words.note}</p>}
      {words.seen && <p class="faint">{words.seen}</p>}
    </div>
  );
}
