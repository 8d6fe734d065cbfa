/*
 * A plotly figure built by the server. The library is fetched only when a figure comes near the screen, and it is told
 * this page's colours; the server's sentences stand under every figure, for everyone.
 */

import { useEffect, useRef, useState } from "preact/hooks";
import { colour, paletteVersion } from "../state/theme";
import type { PlotlyFigure } from "../types";
import { keepItsStylesOut } from "./plotlyStyles";

interface FigureProps {
  figure: PlotlyFigure;
  label: string;
  /** Told which stretch of a linear x axis the reader dragged over; null: all of it again. */
  onStretch?: (stretch: [number, number] | null) => void;
}

export function Figure({ figure, label, onStretch }: FigureProps) {
  const box = useRef<HTMLDivElement>(null);
  const [failure, setFailure] = useState("");
  const palette = paletteVersion.value;
  const heard = useRef(onStretch);
  heard.current = onStretch;
  // An empty chart would have axes of its own making: years of which nobody spoke.
  const isEmpty = figure.data.length === 0;
  useEffect(() => {
    const element = box.current;
    if (!element || isEmpty) return;
    draw(element, figure, (stretch) => heard.current?.(stretch)).catch((error: Error) => setFailure(error.message));
  }, [figure, palette]);
  useEffect(() => {
    const element = box.current;
    return () => {
      if (element) void import("plotly.js-cartesian-dist-min").then((plotly) => plotly.default.purge(element));
    };
  }, []);
  return (
    <figure class="figure" aria-label={label}>
      <div ref={box} class="figure-box" aria-hidden="true" hidden={isEmpty} />
      {failure && <p class="warning">The chart could not be drawn: {failure}</p>}
      <figcaption>{figure.text}</figcaption>
    </figure>
  );
}

async function draw(
  element: HTMLElement,
  figure: PlotlyFigure,
  heard: (stretch: [number, number] | null) => void,
): Promise<void> {
  keepItsStylesOut();
  const { default: plotly } = await import("plotly.js-cartesian-dist-min");
  const config = {
    ...figure.config,
    displayModeBar: false,
    displaylogo: false,
    showSendToCloud: false,
    responsive: true,
  };
  const drawn = await plotly.react(element, themed(figure.data), themedLayout(figure.layout), config);
  drawn.removeAllListeners?.("plotly_relayout");
  drawn.on?.("plotly_relayout", (change) => {
    const [from, until] = [change["xaxis.range[0]"], change["xaxis.range[1]"]];
    if (typeof from === "number" && typeof until === "number") heard([from, until]);
    else if (change["xaxis.autorange"]) heard(null);
  });
}

const LINES = ["accent", "rank-waiting-text", "rank-silent-text", "rank-ok-text"];

/** Traces without a colour of their own get this page's. */
function themed(traces: unknown[]): unknown[] {
  return traces.map((trace, n) => {
    const { line, marker, ...rest } = trace as { line?: object; marker?: object };
    const own = colour(LINES[n % LINES.length]);
    return { mode: "lines", ...rest, line: { color: own, width: 1.75, ...line }, marker: { color: own, ...marker } };
  });
}

function themedLayout(layout: Record<string, unknown>): Record<string, unknown> {
  const axis = { gridcolor: colour("line-2"), linecolor: colour("line"), zerolinecolor: colour("line") };
  const themedAxes = Object.fromEntries(
    Object.entries({ xaxis: {}, yaxis: {}, ...layout })
      .filter(([name]) => /^[xy]axis\d*$/.test(name))
      .map(([name, given]) => [name, { ...(given as object), ...axis, automargin: true }]),
  );
  return {
    ...layout,
    ...themedAxes,
    // Above the plot: below it, it lies on the axis' title as soon as the page is narrow.
    legend: { ...(layout.legend as object), orientation: "h", x: 0, y: 1.02, yanchor: "bottom" },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: colour("ink-2") },
    height: layout.height ?? 260,
    title: undefined,
    margin: { l: 48, r: 12, t: 34, b: 40 },
    hoverlabel: { bgcolor: colour("raised"), bordercolor: colour("line"), font: { color: colour("ink") } },
  };
}
