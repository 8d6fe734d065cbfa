/*
 * Rate curves from the raw epochs that were fetched: of the group's ranks or of one rank's flows, on one axis of time. Dragging over
 * the picture asks the server for that stretch, as finely as epochs go. Without fetched epochs the ops are drawn as
 * rectangles, and the page says that it does so.
 */

import { useEffect, useRef, useState } from "preact/hooks";
import { ask } from "../api";
import { Boxed } from "../parts/Boxed";
import { Failure } from "../parts/Failure";
import { Figure } from "../parts/Figure";
import { useAnswer } from "../parts/useAnswer";
import { count } from "../state/words";
import type { PlotlyFigure } from "../types";
import { type EpochsAnswer, moved, type Stretch, silentWords, stretchOf, WAYS, widened } from "./epochs";

interface EpochsPanelProps {
  source: string;
  rank: number;
  group: string;
  /** What is drawn while no epochs were fetched. */
  rates: PlotlyFigure;
  beat: string | number;
}

const PENDING_MS = 4000;

export function EpochsPanel({ source, rank, group, rates, beat }: EpochsPanelProps) {
  const [by, setBy] = useState<"rank" | "flow">("rank");
  const [stretch, setStretch] = useState<Stretch | null>(null);
  const [tick, setTick] = useState(0);
  const about = `${source} ${rank} ${group}`;
  useEffect(() => setStretch(null), [about]);
  const asked = `${source}/network/epochs?rank=${rank}&group=${group}&by=${by}${
    stretch ? `&from_us=${stretch[0]}&until_us=${stretch[1]}` : ""
  }`;
  const { value, failure, again } = useAnswer(asked, () => ask<EpochsAnswer>(asked), `${beat} ${tick}`);
  const shown = useLast(about, value);
  useEffect(() => {
    if (!shown?.pending) return;
    const timer = setTimeout(() => setTick((n) => n + 1), PENDING_MS);
    return () => clearTimeout(timer);
  }, [shown]);
  if (failure && !shown) return <Failure error={failure} again={again} />;
  if (!shown) return null;
  if (shown.iterations.length === 0) return <Rectangles answer={shown} rates={rates} source={source} asked={again} />;
  return (
    <Boxed
      class="network-figure network-epochs"
      level={3}
      title="Rates, epoch by epoch"
      hint="drag over a stretch to see it finer; a double click shows the iteration again"
    >
      <Controls answer={shown} by={by} setBy={setBy} show={setStretch} />
      <Figure
        figure={shown.figure}
        label="Bytes a second by epoch"
        onStretch={(seen) => setStretch(seen && stretchOf(...seen))}
      />
      <Rests answer={shown} />
    </Boxed>
  );
}

/** The newest answer about the same thing, while the next one is on its way. */
function useLast(about: string, value: EpochsAnswer | null): EpochsAnswer | null {
  const last = useRef<{ about: string; value: EpochsAnswer | null }>({ about, value: null });
  if (last.current.about !== about) last.current = { about, value: null };
  if (value) last.current.value = value;
  return last.current.value;
}

interface ControlsProps {
  answer: EpochsAnswer;
  by: "rank" | "flow";
  setBy: (by: "rank" | "flow") => void;
  show: (stretch: Stretch | null) => void;
}

function Controls({ answer, by, setBy, show }: ControlsProps) {
  const now: Stretch = [answer.from_us, answer.until_us];
  return (
    <div class="network-controls">
      {(["rank", "flow"] as const).map((one) => (
        <button key={one} type="button" class="small" aria-pressed={by === one} onClick={() => setBy(one)}>
          {one === "rank" ? "By rank" : `Flows of rank ${answer.rank}`}
        </button>
      ))}
      <label>
        Iteration{" "}
        <select
          value={answer.iteration ?? ""}
          onChange={(change) => {
            const one = answer.iterations.find((each) => String(each.number) === change.currentTarget.value);
            show(one ? [one.from_us, one.until_us] : null);
          }}
        >
          {answer.iteration === null && <option value="">between two</option>}
          {answer.iterations.map((one) => (
            <option key={one.number} value={one.number} selected={one.number === answer.iteration}>
              {one.number.toLocaleString("en")}, {((one.until_us - one.from_us) / 1000).toPrecision(3)} ms
              {one.is_whole ? "" : ", incomplete"}
            </option>
          ))}
        </select>
      </label>
      {WAYS.map(({ word, title, by: share }) => (
        <button key={word} type="button" class="small" title={title} onClick={() => show(moved(now, share))}>
          {word}
        </button>
      ))}
      <button type="button" class="small" onClick={() => show(widened(now, 0.25))}>
        Closer
      </button>
      <button type="button" class="small" onClick={() => show(widened(now, 4))}>
        Wider
      </button>
    </div>
  );
}

function Rests({ answer }: { answer: EpochsAnswer }) {
  return (
    <p class="faint">
      Epochs of {answer.epoch_us} µs as the agents kept them, by the {answer.source}
      {answer.column_us !== null && answer.column_us > (answer.epoch_us ?? 0) && `; a point is ${answer.column_us} µs`}.
      {answer.by === "rank" &&
        answer.ranks.length < answer.n_ranks &&
        ` ${answer.ranks.length} of ${answer.n_ranks} ranks are drawn.`}
      {answer.left_out > 0 && ` ${count(answer.left_out, "flow is", "flows are")} left out.`}{" "}
      {silentWords(answer.silent)}
    </p>
  );
}

interface RectanglesProps {
  answer: EpochsAnswer;
  rates: PlotlyFigure;
  source: string;
  asked: () => void;
}

function Rectangles({ answer, rates, source, asked }: RectanglesProps) {
  const [said, setSaid] = useState("");
  const fetchEpochs = () => {
    setSaid("Asking the nodes…");
    ask(`${source}/dumps`, "POST", { kinds: ["epochs"] })
      .then(() => setSaid("The nodes were asked; this takes some seconds."))
      .catch((error: Error) => setSaid(error.message))
      .finally(asked);
  };
  return (
    <Boxed
      class="network-figure"
      level={3}
      title="Rates"
      hint="a rectangle for each op, from its first byte to its last, as high as its mean rate"
    >
      <Figure figure={rates} label="Rate of ranks over time, a rectangle for each op" />
      <p class="faint">
        {answer.pending
          ? "Epochs were asked for and are on their way."
          : "No epochs were fetched: pauses inside an op cannot be seen."}{" "}
        {silentWords(answer.silent)} {said}
      </p>
      {!answer.pending && (
        <button type="button" class="small" onClick={fetchEpochs}>
          Fetch epochs
        </button>
      )}
    </Boxed>
  );
}
