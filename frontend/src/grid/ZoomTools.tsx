/* The buttons of the grid's zoom, and its keys. Nothing where the cells are as large as they become. */

import { STEP_TIMES, type Zoom } from "./useZoom";

export function ZoomTools({ zoom }: { zoom: Zoom }) {
  if (zoom.most <= 1) return null;
  const isWhole = zoom.times === 1;
  return (
    <div class="grid-zoom">
      <span class="faint">{isWhole ? "" : `× ${zoom.times.toFixed(1)}, drag to move`}</span>
      <fieldset class="segmented small" aria-label="Size of the cells">
        <button
          type="button"
          aria-label="Zoom in"
          title="Zoom in: + or Ctrl and wheel"
          disabled={zoom.times >= zoom.most}
          onClick={() => zoom.by(STEP_TIMES)}
        >
          +
        </button>
        <button
          type="button"
          aria-label="Zoom out"
          title="Zoom out: −"
          disabled={isWhole}
          onClick={() => zoom.by(1 / STEP_TIMES)}
        >
          −
        </button>
        <button type="button" title="0" disabled={isWhole} onClick={zoom.whole}>
          All
        </button>
      </fieldset>
    </div>
  );
}

/** + − 0 while the grid has the focus; true when the key was one of them. cell: around which. */
export function zoomKey(key: KeyboardEvent, zoom: Zoom, cell: number): boolean {
  if (key.ctrlKey || key.metaKey || key.altKey) return false;
  if (key.key === "+" || key.key === "=") zoom.by(STEP_TIMES, cell);
  else if (key.key === "-") zoom.by(1 / STEP_TIMES, cell);
  else if (key.key === "0") zoom.whole();
  else return false;
  return true;
}
