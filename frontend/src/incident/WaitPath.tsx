/*
 * The waiting path as a drawing: vivid where it started, arrows from everyone to whom they wait for, each with the
 * communicator and op. Pointing at a box marks its ranks in the grid and the lanes. The same in sentences below it, which
 * is also what a screen reader hears.
 */

import { useMemo } from "preact/hooks";
import { useWidth } from "../parts/useWidth";
import { timeOfDay, zoneLabel } from "../state/clock";
import { pointAt, pointedRanks } from "../state/pointed";
import { suspectsOf } from "../state/roles";
import { count } from "../state/words";
import type { Diagnosis } from "../types";
import { type PathGraph, pathGraph, pathSentences, rankWords } from "./path";
import { arrowPath, BOX_H, GAP_X, type Placed, type Placement, placeBoxes } from "./place";

interface WaitPathProps {
  diagnosis: Diagnosis;
  culprits: readonly number[];
  nodeOf: (rank: number) => string;
  /** The earlier moment that the other pictures show, unix ms: this one stays the newest, and says so. */
  pin?: number | null;
}

export function WaitPath({ diagnosis, culprits, nodeOf, pin = null }: WaitPathProps) {
  const suspects = suspectsOf(diagnosis.findings[0]);
  const ends = [culprits, suspects, diagnosis.findings[0]?.subject.ranks ?? []].find((ranks) => ranks.length > 0) ?? [];
  const endRole =
    culprits.length > 0 ? "started it" : suspects.length > 0 ? "one of these started it" : "where the path ends";
  const endClass = culprits.length > 0 ? "path-culprit" : suspects.length > 0 ? "path-suspect" : "path-victim";
  const graph = useMemo(
    () => pathGraph(ends, diagnosis.path, diagnosis.communicators, diagnosis.victims, nodeOf),
    [diagnosis, ends.join(), nodeOf],
  );
  if (graph.boxes.every((box) => box.waitsFor.length === 0)) return null;
  const { near, far } = pathSentences(graph);
  return (
    <section class="panel wait-path" aria-labelledby="waiting-path">
      <div class="panel-head">
        <h2 id="waiting-path">Who waits for whom</h2>
        {pin !== null && (
          <span class="newest-not">
            newest, not {timeOfDay(pin)} {zoneLabel()}
          </span>
        )}
        <span class="faint">
          an arrow points at what is waited for
          {graph.unlisted > 0 && ` · the nearest ${drawn(graph)} of ${count(diagnosis.victims.length, "waiting rank")}`}
        </span>
      </div>
      <Drawing graph={graph} nodeOf={nodeOf} endClass={endClass} endRole={endRole} />
      <Sentences lines={near} />
      {far.length > 0 && (
        <details>
          <summary>Who waits farther out, in words</summary>
          <Sentences lines={far} />
        </details>
      )}
    </section>
  );
}

function Sentences({ lines }: { lines: readonly string[] }) {
  return (
    <ol class="path-words">
      {lines.map((line) => (
        <li key={line}>{line}</li>
      ))}
    </ol>
  );
}

function drawn({ boxes }: PathGraph): string {
  const n = boxes.filter((box) => box.layer > 0).reduce((sum, box) => sum + box.ranks.length, 0);
  return n.toLocaleString("en-US");
}

/** Taken until the panel is measured, and where it has hardly any width. */
const WIDTH_AT_FIRST = 900;
const WIDTH_MIN = 200;

function Drawing({
  graph,
  nodeOf,
  endClass,
  endRole,
}: {
  graph: PathGraph;
  nodeOf: WaitPathProps["nodeOf"];
  endClass: string;
  /** What those are at whom the path ends. */
  endRole: string;
}) {
  const [box, width] = useWidth<HTMLDivElement>();
  const placement = useMemo(
    () => placeBoxes(graph.boxes, (width < WIDTH_MIN ? WIDTH_AT_FIRST : width) - 4),
    [graph, width],
  );
  return (
    <div ref={box} class="path-box">
      <svg
        class="path-drawing"
        aria-hidden="true"
        viewBox={`-2 -2 ${placement.width + 4} ${placement.height + 4}`}
        width={placement.width + 4}
        height={placement.height + 4}
      >
        <Patterns />
        {placement.placed.map((one) => (
          <Arrows key={one.id} from={one} placement={placement} />
        ))}
        {placement.placed.map((one) => (
          <Box key={one.id} box={one} where={nodeWords(one.ranks, nodeOf)} endClass={endClass} endRole={endRole} />
        ))}
      </svg>
    </div>
  );
}

function Patterns() {
  return (
    <defs>
      <pattern id="culprit-hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
        <rect width="6" height="6" />
        <line x1="3" y1="0" x2="3" y2="6" />
      </pattern>
      <marker id="path-arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
        <path d="M1 1l6 3-6 3" />
      </marker>
    </defs>
  );
}

/** "node-3", "63 nodes"; "" where no node is known. */
function nodeWords(ranks: readonly number[], nodeOf: WaitPathProps["nodeOf"]): string {
  const nodes = new Set(ranks.map(nodeOf).filter(Boolean));
  return nodes.size <= 1 ? ([...nodes][0] ?? "") : count(nodes.size, "node");
}

interface BoxProps {
  box: Placed;
  where: string;
  endClass: string;
  endRole: string;
}

function Box({ box, where, endClass, endRole }: BoxProps) {
  const isEnd = box.layer === 0;
  const isPointed = pointedRanks.value.size > 0 && box.ranks.some((rank) => pointedRanks.value.has(rank));
  const letters = (box.width - 24) / 7.4;
  const title = boxTitle(box.ranks, letters);
  return (
    <g
      transform={`translate(${box.x} ${box.y})`}
      class={`${isEnd ? endClass : "path-victim"} ${isPointed ? "pointed" : ""}`}
      onPointerEnter={() => pointAt(box.ranks)}
      onPointerLeave={() => pointAt([])}
    >
      <rect width={box.width} height={BOX_H} rx="7" />
      {isEnd && endClass !== "path-victim" && <rect class="path-hatch" width="9" height={BOX_H} rx="4" />}
      <text x="17" y="18" class="path-title">
        {title}
      </text>
      <text x="17" y="34" class="path-sub">
        {subtitle(box, title, where, endRole, (box.width - 24) / 6.3)}
      </text>
    </g>
  );
}

/** Where they are, and what the title does not say; as much of it as fits. */
function subtitle(box: Placed, title: string, where: string, endRole: string, letters: number): string {
  const place = /^\d/.test(where) ? `on ${where}` : where;
  const many = count(box.ranks.length, "rank");
  const role = box.layer === 0 ? endRole : box.ranks.length > 1 ? many : "";
  const whole = [place, role === title ? "" : role].filter(Boolean).join(" · ");
  return whole.length <= letters ? whole : short(box.layer === 0 ? role : place || role, letters);
}

/** Fewer pieces of a range rather than a cut number. */
function boxTitle(ranks: readonly number[], letters: number): string {
  for (let pieces = 6; pieces > 0; pieces--) {
    const words = rankWords(ranks, "rank", pieces);
    if (words.length <= letters) return words;
  }
  return count(ranks.length, "rank");
}

function Arrows({ from, placement: { placed, isTall } }: { from: Placed; placement: Placement }) {
  const label = [from.comm, from.ops].filter(Boolean);
  return (
    <>
      {from.waitsFor.map((id) => (
        <path
          key={id}
          class={from.layer === 0 ? "path-edge path-circle" : "path-edge"}
          d={arrowPath(from, placed[id], isTall)}
          marker-end="url(#path-arrow)"
        />
      ))}
      {isTall && from.layer > 0 ? (
        <text class="path-label" x={from.x} y={from.y - 6}>
          {label.join(" ")}
        </text>
      ) : (
        from.layer > 0 &&
        label.map((line, n) => (
          <text
            key={line}
            class="path-label"
            x={from.x - 8}
            y={from.y + BOX_H / 2 + (n === 0 ? -6 : 15)}
            text-anchor="end"
          >
            {short(line, (GAP_X - 30) / 6)}
          </text>
        ))
      )}
    </>
  );
}

function short(text: string, length: number): string {
  return text.length <= length ? text : `${text.slice(0, Math.max(1, Math.floor(length) - 1))}…`;
}
