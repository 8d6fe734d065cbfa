/*
 * The waiting path as a small drawing: the culprit on the left, arrows from everyone to whom they wait for. The same in
 * sentences below it, which is also what a screen reader hears.
 */

import { useMemo } from "preact/hooks";
import { ScrollBox } from "../parts/ScrollBox";
import { count, rankRanges } from "../state/words";
import type { Diagnosis } from "../types";
import { type PathBox, pathBoxes, pathSentences } from "./path";

/** Wide boxes while the path is short; deep paths must fit too. */
const boxWidth = (layers: number) => (layers <= 3 ? 176 : 118);
const BOX_H = 40;
const GAP_X = 38;
const GAP_Y = 14;

interface Placed extends PathBox {
  width: number;
  x: number;
  y: number;
}

export function WaitPath({ diagnosis, culprits }: { diagnosis: Diagnosis; culprits: readonly number[] }) {
  const boxes = useMemo(
    () => pathBoxes(culprits, diagnosis.path, diagnosis.communicators),
    [diagnosis, culprits.join()],
  );
  if (boxes.length < 2) return null;
  const sentences = pathSentences(boxes);
  return (
    <section class="panel wait-path" aria-labelledby="waiting-path">
      <div class="panel-head">
        <h2 id="waiting-path">Who waits for whom</h2>
        <span class="faint">an arrow points at what is waited for</span>
      </div>
      <ScrollBox class="path-scroll" label="Who waits for whom">
        <Drawing boxes={boxes} />
      </ScrollBox>
      <ol class="path-words">
        {sentences.slice(0, 8).map((sentence) => (
          <li key={sentence}>{sentence}</li>
        ))}
        {sentences.length > 8 && <li>{count(sentences.length - 8, "more group")} of waiting ranks.</li>}
      </ol>
    </section>
  );
}

function Drawing({ boxes }: { boxes: PathBox[] }) {
  const { placed, width, height } = place(boxes);
  return (
    <svg
      class="path-drawing"
      viewBox={`-2 -2 ${width + 4} ${height + 4}`}
      width={width + 4}
      height={height + 4}
      aria-hidden="true"
    >
      <defs>
        <pattern id="culprit-hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
          <rect width="6" height="6" />
          <line x1="3" y1="0" x2="3" y2="6" />
        </pattern>
        <marker id="path-arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
          <path d="M1 1l6 3-6 3" />
        </marker>
      </defs>
      {placed.flatMap((box) => box.waitsFor.map((id) => <Arrow key={`${box.id}-${id}`} from={box} to={placed[id]} />))}
      {placed.map((box) => (
        <Box key={box.id} box={box} />
      ))}
    </svg>
  );
}

function Box({ box }: { box: Placed }) {
  const culprit = box.layer === 0;
  return (
    <g transform={`translate(${box.x} ${box.y})`} class={culprit ? "path-culprit" : "path-victim"}>
      <rect width={box.width} height={BOX_H} rx="7" />
      {culprit && <rect class="path-hatch" width="9" height={BOX_H} rx="4" />}
      <text x="16" y="17" class="path-title">
        {short(`${box.ranks.length === 1 ? "rank" : "ranks"} ${rankRanges(box.ranks, 6)}`, box.width / 8)}
      </text>
      <text x="16" y="31" class="path-sub">
        {culprit ? "started it" : short(box.comm || "waits", box.width / 7)}
      </text>
    </g>
  );
}

function Arrow({ from, to }: { from: Placed; to: Placed }) {
  const [x1, y1] = [from.x - 2, from.y + BOX_H / 2];
  const [x2, y2] = [to.x + to.width + 4, to.y + BOX_H / 2];
  const bend = (x1 - x2) / 2;
  return (
    <path
      class="path-edge"
      d={`M${x1} ${y1}C${x1 - bend} ${y1} ${x2 + bend} ${y2} ${x2} ${y2}`}
      marker-end="url(#path-arrow)"
    />
  );
}

function place(boxes: PathBox[]): { placed: Placed[]; width: number; height: number } {
  const layers = 1 + Math.max(...boxes.map((box) => box.layer));
  const boxW = boxWidth(layers);
  const perLayer = Array.from({ length: layers }, (_, layer) => boxes.filter((box) => box.layer === layer));
  const tallest = Math.max(...perLayer.map((layer) => layer.length));
  const height = tallest * (BOX_H + GAP_Y) - GAP_Y;
  const placed = boxes.map((box) => {
    const layer = perLayer[box.layer];
    const top = (height - (layer.length * (BOX_H + GAP_Y) - GAP_Y)) / 2;
    return { ...box, width: boxW, x: box.layer * (boxW + GAP_X), y: top + layer.indexOf(box) * (BOX_H + GAP_Y) };
  });
  return { placed, width: layers * (boxW + GAP_X) - GAP_X, height };
}

function short(text: string, length: number): string {
  return text.length <= length ? text : `${text.slice(0, length - 1)}…`;
}
