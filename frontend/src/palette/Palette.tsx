/* The command palette: type what you want, choose with the arrows, Enter does it. Opened by Ctrl or Cmd with K. */

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { ApiError, readIncident } from "../api";
import { readViews, type ViewRow } from "../handling";
import type { IncidentRow } from "../live/rows";
import { SilenceDialog } from "../silences/SilenceDialog";
import { actOn } from "../state/actions";
import { go, path, selectRank } from "../state/address";
import { setZone, zone } from "../state/clock";
import { paletteOpen, typedAhead } from "../state/keys";
import { offered } from "../state/offered";
import { liveIncidents, liveJob, mayAct, session } from "../state/team";
import { setTheme } from "../state/theme";
import { type Around, type Command, commandsFor, numberIn } from "./commands";

interface Silencing {
  row: IncidentRow | null;
  minutes: number | null;
}

const shut = () => {
  paletteOpen.value = false;
};

export function Palette() {
  const [silencing, setSilencing] = useState<Silencing | null>(null);
  if (silencing)
    return <SilenceDialog row={silencing.row ?? undefined} minutes={silencing.minutes ?? undefined} onClose={shut} />;
  return <Box onSilence={setSilencing} />;
}

function Box({ onSilence }: { onSilence: (silencing: Silencing) => void }) {
  const box = useRef<HTMLDialogElement>(null);
  const [text, setText] = useState(() => typedAhead.value.split("\n")[0]);
  const [at, setAt] = useState(0);
  const [views, setViews] = useState<ViewRow[]>([]);
  const exists = useExists(numberIn(text));
  const commands = commandsFor(text, { ...aroundHere(views, onSilence), exists });
  const chosen = Math.min(at, commands.length - 1);
  const run = (command: Command | undefined) => {
    if (!command || command.isNote) return;
    const before = silenceOpens(command);
    if (!before) shut();
    command.run();
  };
  // Before the next key can come: what is typed between drawing and opening would be in nobody's field.
  useLayoutEffect(() => {
    const dialog = box.current;
    if (dialog && !dialog.open) dialog.showModal();
    if (typedAhead.value.includes("\n")) run(commands[0]);
    readViews().then(
      (answer) => setViews(answer.views),
      () => undefined,
    );
    return () => dialog?.close();
  }, []);
  const press = (key: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[key.key];
    if (step) {
      setAt((chosen + step + commands.length) % Math.max(commands.length, 1));
      key.preventDefault();
    }
    if (key.key === "Enter") {
      key.preventDefault();
      run(commands[chosen]);
    }
  };
  return (
    <dialog
      ref={box}
      class="palette"
      aria-label="Find or do"
      // One that has left the page says late that it is closed: a silence is asked for in its place then.
      onClose={() => box.current && shut()}
      onClick={(click) => click.target === box.current && shut()}
      onKeyDown={press}
    >
      <input
        role="combobox"
        aria-expanded="true"
        aria-controls="palette-list"
        aria-activedescendant={chosen >= 0 ? `command-${chosen}` : undefined}
        aria-label="What do you want?"
        placeholder="Page, #12, rank 4711, node r12n03, ack, silence 2h, words …"
        value={text}
        onInput={(input) => {
          setText(input.currentTarget.value);
          setAt(0);
        }}
      />
      <div role="listbox" id="palette-list" aria-label="Commands" tabIndex={-1}>
        {commands.map((command, n) => (
          // biome-ignore lint/a11y/useKeyWithClickEvents: the field above has the keys
          <div
            key={`${command.word} ${command.hint}`}
            id={`command-${n}`}
            role="option"
            tabIndex={-1}
            aria-selected={n === chosen}
            aria-disabled={command.isNote}
            onClick={() => run(command)}
          >
            <span>{command.word}</span>
            <span class="faint">{command.hint}</span>
          </div>
        ))}
      </div>
    </dialog>
  );
}

/** A silence is asked for in the palette's place. */
function silenceOpens(command: Command): boolean {
  return /^(New silence|Silence)\b.*…$/.test(command.word);
}

const ASK_MS = 200;

/** Whether there is such an incident; undefined while nobody has said. */
function useExists(number: number | null): boolean | undefined {
  const [known, setKnown] = useState<{ number: number; exists: boolean } | null>(null);
  const isInSight = liveIncidents.value.some((row) => row.number === number);
  useEffect(() => {
    if (number === null || isInSight) return;
    let isCurrent = true;
    const say = (exists: boolean) => isCurrent && setKnown({ number, exists });
    const timer = setTimeout(() => {
      readIncident(number).then(
        () => say(true),
        (error) => error instanceof ApiError && error.status === 404 && say(false),
      );
    }, ASK_MS);
    return () => {
      isCurrent = false;
      clearTimeout(timer);
    };
  }, [number, isInSight]);
  if (isInSight) return true;
  return known?.number === number ? known?.exists : undefined;
}

function aroundHere(views: readonly ViewRow[], onSilence: (silencing: Silencing) => void): Omit<Around, "exists"> {
  const [, room, id] = /^\/(incidents|jobs)\/(\d+)/.exec(path.value) ?? [];
  const here = (room === "incidents" && liveIncidents.value.find((row) => row.number === Number(id))) || null;
  return {
    here,
    incidents: liveIncidents.value,
    // The palette has to be gone before what it was asked for opens in its place.
    offers: offered.value.map((offer) => ({ ...offer, run: () => setTimeout(offer.run) })),
    job: liveJob(here ? here.job_id : room === "jobs" ? Number(id) : -1) ?? null,
    views,
    mayAct: mayAct.value,
    isAdmin: session.value?.role === "admin",
    go: (to) => (to.startsWith("/api/") ? location.assign(to) : go(to)),
    selectRank,
    act: (row, verb) => void actOn(row, verb),
    silence: (row, minutes) => onSilence({ row, minutes }),
    setZone: () => setZone(zone.value === "utc" ? "browser" : "utc"),
    setTheme,
  };
}
