/*
 * The time scrubber: a slider over the minutes of which traces are stored, with the moments people look for as ticks. Its
 * right end is the newest. While an earlier moment is shown it stays in sight and says which, so nobody takes the past
 * for now.
 */

import { useEffect, useLayoutEffect, useState } from "preact/hooks";
import { phase } from "../live/socket";
import { pinMoment, pinnedMoment } from "../state/address";
import { serverNow, spanWords, timeOfDay, zoneLabel } from "../state/clock";
import { BLIND_MS } from "../state/sight";
import { away } from "../state/team";
import { count } from "../state/words";
import {
  agoWords,
  endWords,
  gapsOf,
  laterWords,
  type Minutes,
  minutesOf,
  momentAt,
  momentBeside,
  momentWords,
  nearWords,
  placeAt,
  valueAt,
  whole,
} from "./minutes";
import type { Moment, Moments } from "./past";
import type { Scrub } from "./scrub";

interface ScrubberProps {
  scrub: Scrub;
  /** Changes when there may be another moment to mark. */
  beat: string;
}

export function Scrubber({ scrub, beat }: ScrubberProps) {
  const moments = scrub.moments.value;
  const pinned = pinnedMoment();
  // At once: an effect that waits for the next frame would take back what the next key has chosen meanwhile.
  useLayoutEffect(() => scrub.show(pinned), [scrub, pinned]);
  useEffect(() => {
    if (scrub.moments.peek()) void scrub.readMoments();
  }, [beat]);
  if (!moments || moments.newest_ns === 0) return <Untimed scrub={scrub} />;
  const at = scrub.at.value;
  return (
    <section class={`panel scrubber ${at === null ? "" : "scrubber-pinned"}`} aria-label="Time">
      <div class="scrubber-head">
        <Shown scrub={scrub} moments={moments} />
        <Beside moments={moments} at={at} />
      </div>
      <Track scrub={scrub} moments={moments} at={at} />
    </section>
  );
}

/** Without minutes to choose from an earlier moment of the address can still be let go. */
function Untimed({ scrub }: { scrub: Scrub }) {
  if (scrub.at.value === null) return null;
  return (
    <section class="panel scrubber scrubber-pinned" aria-label="Time">
      <p role="status" class="scrubber-shown">
        {timeOfDay(scrub.at.value)} {zoneLabel()}: {scrub.failure.value ?? "being read"}
        <BackToNewest live={false} />
      </p>
    </section>
  );
}

function Shown({ scrub, moments }: { scrub: Scrub; moments: Moments }) {
  const at = scrub.at.value;
  if (at === null) {
    return (
      <p class="scrubber-shown">
        <b>{isLive(moments) ? "Live" : "Newest"}</b>
        <span class="faint">Drag to see topology, flows and stacks as they were.</span>
      </p>
    );
  }
  const near = nearWords(at, moments.moments);
  return (
    <p class="scrubber-shown">
      <b>{timeOfDay(at)}</b>
      <span>
        {zoneLabel()}, {agoWords(at)}
        {near && `, ${near}`}
      </span>
      <BackToNewest live={isLive(moments)} />
      <Doubts scrub={scrub} moments={moments} />
      {scrub.source.startsWith("incidents/") && <span class="faint">Verdict and path stay the newest.</span>}
    </p>
  );
}

/** Of a job that nobody hears any more the newest is old, and so it is on a page that hears nothing. */
function isLive({ is_live, newest_ns }: Moments): boolean {
  return is_live && phase.value !== "stale" && !away.value && serverNow() - newest_ns / 1e6 < BLIND_MS;
}

function BackToNewest({ live }: { live: boolean }) {
  return (
    <button type="button" class="small" onClick={() => pinMoment(null)}>
      Back to {live ? "live" : "the newest"}
    </button>
  );
}

/** What is not as it looks: another moment stands there still, nothing is stored, or it could not be read. */
function Doubts({ scrub, moments }: { scrub: Scrub; moments: Moments }) {
  const [at, past, failure] = [scrub.at.value, scrub.past.value, scrub.failure.value];
  if (failure) return <strong class="scrubber-doubt">{failure}</strong>;
  if (at !== null && !isWithin(moments, at)) return <span class="faint">outside these minutes</span>;
  if (past?.said) return <strong class="scrubber-doubt">{past.said}</strong>;
  return null;
}

function isWithin(moments: Moments, ms: number): boolean {
  return ms * 1e6 >= moments.from_ns - 1e9 && ms * 1e6 <= moments.to_ns + 1e9;
}

function Beside({ moments, at }: { moments: Moments; at: number | null }) {
  const [before, after] = [momentBeside(moments.moments, at, -1), momentBeside(moments.moments, at, 1)];
  const listed = [...moments.moments, ...moments.after];
  // Several may be of the same moment: the one that was chosen is named.
  const [picked, pick] = useState("");
  const isThere = (one: Moment) => whole(one) === at;
  const chosen = listed.findIndex((one) => isThere(one) && keyOf(one) === picked);
  const value = chosen >= 0 ? chosen : listed.findIndex(isThere);
  const jump = (moment: Moment | null) => {
    if (!moment) return;
    pick(keyOf(moment));
    pinMoment(whole(moment));
  };
  return (
    <div class="scrubber-jump">
      <LeftOut moments={moments} />
      <button type="button" class="small" disabled={!before} onClick={() => jump(before)} title={before?.word}>
        <span aria-hidden="true">‹</span>
        <span class="visually-hidden">Moment before</span>
      </button>
      <label>
        <span class="visually-hidden">Go to a moment</span>
        <select
          value={String(value)}
          onChange={(change) => jump(listed[Number((change.target as HTMLSelectElement).value)] ?? null)}
        >
          <option value="-1" disabled>
            {count(listed.length, "moment")}
          </option>
          {moments.moments.map((one, n) => (
            <Choice key={keyOf(one)} moment={one} value={n} />
          ))}
          {moments.after.length > 0 && (
            <optgroup label={`After ${timeOfDay(moments.to_ns / 1e6)}`}>
              {moments.after.map((one, n) => (
                <Choice
                  key={keyOf(one)}
                  moment={one}
                  value={moments.moments.length + n}
                  isUnknown={one.at_ns > moments.newest_ns}
                />
              ))}
            </optgroup>
          )}
        </select>
      </label>
      <button type="button" class="small" disabled={!after} onClick={() => jump(after)} title={after?.word}>
        <span aria-hidden="true">›</span>
        <span class="visually-hidden">Moment after</span>
      </button>
    </div>
  );
}

const keyOf = (one: Moment) => `${one.kind} ${one.at_ns} ${one.word}`;

interface ChoiceProps {
  moment: Moment;
  value: number;
  /** After all that is known: it can be named, and nothing can be shown of it. */
  isUnknown?: boolean;
}

function Choice({ moment, value, isUnknown = false }: ChoiceProps) {
  return (
    <option value={String(value)} disabled={isUnknown}>
      {timeOfDay(moment.at_ns / 1e6, 1)} {shortened(moment.word)}
      {isUnknown && " (nothing is known of this time)"}
    </option>
  );
}

function LeftOut({ moments }: { moments: Moments }) {
  const { omitted, later, after } = moments;
  const unlisted = omitted + later - after.length;
  const parts = [laterWords(moments), unlisted > 0 && `${unlisted} not listed`].filter(Boolean);
  if (parts.length === 0) return null;
  return (
    <span class="faint" title={after.map((one) => `${timeOfDay(one.at_ns / 1e6)} ${one.word}`).join("\n")}>
      {parts.join(", ")}
    </span>
  );
}

const WORD_MAX = 60;

function shortened(word: string): string {
  return word.length > WORD_MAX ? `${word.slice(0, WORD_MAX - 1)}…` : word;
}

/** Seconds that Page Up and Page Down go. */
const PAGE = 10;

function Track({ scrub, moments, at }: { scrub: Scrub; moments: Moments; at: number | null }) {
  const minutes = minutesOf(moments);
  const value = valueAt(minutes, at);
  const show = (next: number) => scrub.show(momentAt(minutes, Math.max(0, Math.min(minutes.newest, next))));
  const press = (key: KeyboardEvent) => {
    const step = { PageUp: PAGE, PageDown: -PAGE }[key.key];
    // From the newest one step back is the last second, over the gap.
    const isBack = value > minutes.steps && (key.key === "ArrowLeft" || key.key === "ArrowDown");
    if (!step && !isBack) return;
    key.preventDefault();
    show(isBack ? minutes.steps : Math.min(value, minutes.steps) + (step ?? 0));
    pinMoment(scrub.at.peek());
  };
  const hold = (isHeld: boolean) => () => scrub.hold(isHeld);
  return (
    <div class="scrubber-track">
      <Ticks moments={moments} minutes={minutes} at={at} />
      <input
        type="range"
        min={0}
        max={minutes.newest}
        step={1}
        value={value}
        aria-label="Moment shown"
        aria-valuetext={at === null ? newestWord(moments) : momentWords(at, moments.moments)}
        onInput={(input) => show(Number(input.currentTarget.value))}
        onChange={() => pinMoment(scrub.at.peek())}
        onKeyDown={press}
        onPointerDown={hold(true)}
        onPointerUp={hold(false)}
        onPointerCancel={hold(false)}
      />
      <div class="scrubber-ends faint" aria-hidden="true">
        <span>{timeOfDay(minutes.fromMs)}</span>
        <span>{endWords(moments, newestWord(moments))}</span>
      </div>
    </div>
  );
}

function newestWord(moments: Moments): string {
  return isLive(moments) ? "live" : `newest, ${spanWords(Math.max(0, serverNow() - moments.newest_ns / 1e6))} old`;
}

function Ticks({ moments, minutes, at }: { moments: Moments; minutes: Minutes; at: number | null }) {
  const percent = (share: number) => `${(share * 100).toFixed(2)}%`;
  return (
    <div class="scrubber-ticks" aria-hidden="true">
      {gapsOf(moments).map(({ from, to }) => (
        <i key={from} class="scrubber-gap" style={{ left: percent(from), width: percent(to - from) }} />
      ))}
      {at !== null && <i class="scrubber-passed" style={{ left: percent(placeAt(minutes, at)) }} />}
      {moments.moments.map((one) => (
        <i
          key={keyOf(one)}
          class={`tick tick-${one.kind}`}
          style={{ left: percent(placeAt(minutes, one.at_ns / 1e6)) }}
        />
      ))}
    </div>
  );
}
