/*
 * Stacks of a job: one grid per kind of process, the classes of identical stacks with those that stand out first, the tree
 * of calls, and the raw text of a rank. The incident's tab and the page of a bundle draw the same.
 */

import { useMemo, useState } from "preact/hooks";
import { RankCanvas } from "../grid/RankCanvas";
import { OrderSwitch, orderShown } from "../grid/TopologyGrid";
import { Ago, Empty } from "../parts/bits";
import { query, setQuery } from "../state/address";
import { pointAt } from "../state/pointed";
import { count, rankRanges } from "../state/words";
import { CallTree } from "./CallTree";
import { cellsOf, currentCall, kindsOf, type Marked, markedGroups, otherThreads, paceWords } from "./classes";
import { SilentRanks } from "./DumpsBar";
import { PlaceWord } from "./places";
import { BLOCKS_MAX, RankBlocks } from "./RankBlocks";
import { RankStacks } from "./RankStacks";
import { StacksTable } from "./StacksTable";
import type { CommandKind, Frame, StacksAnswer } from "./shapes";
import type { Source } from "./source";
import { silentTotal } from "./unheard";

interface StacksViewProps {
  stacks: StacksAnswer;
  source: Source;
  selected: number | null;
  onSelect: (rank: number | null) => void;
}

export function StacksView({ stacks, source, selected, onSelect }: StacksViewProps) {
  const { silent } = stacks;
  if (stacks.groups.length === 0 && silent.length === 0) {
    return <Empty title="No stacks have arrived." />;
  }
  return (
    <div class="stacks">
      <p class="faint">
        {stacks.taken_at && (
          <>
            Taken <Ago at={stacks.taken_at} />.{" "}
          </>
        )}
        {stacks.looks < 2
          ? "Looked at once: nobody can say who moves and who does not."
          : "Looked at twice: who was at the same lines both times does not move."}
        {stacks.left_out > 0 && ` ${count(stacks.left_out, "smaller class", "smaller classes")} left out.`}
      </p>
      <SilentRanks silent={silent} total={silentTotal(silent, stacks.silent_count)} what="stacks" />
      {kindsOf(stacks).map((kind) => (
        <KindPanel key={kind} kind={kind} stacks={stacks} selected={selected} onSelect={onSelect} />
      ))}
      {selected !== null && <RankStacks source={source} request={stacks.request} rank={selected} onSelect={onSelect} />}
      {stacks.tree && stacks.tree.count > 0 && <CallTree tree={stacks.tree} />}
    </div>
  );
}

const KIND_WORD: Record<CommandKind, string> = {
  trainer: "Trainers",
  loader: "Data-loader workers",
  checkpoint: "Checkpoint writers",
  other: "Other processes",
};
const CARDS_SHOWN = 8;

interface KindPanelProps {
  kind: CommandKind;
  stacks: StacksAnswer;
  selected: number | null;
  onSelect: (rank: number | null) => void;
}

function KindPanel({ kind, stacks, selected, onSelect }: KindPanelProps) {
  const marked = useMemo(() => markedGroups(stacks, kind), [stacks, kind]);
  const cells = useMemo(() => cellsOf(stacks, kind, marked), [stacks, kind, marked]);
  const commands = stacks.commands.filter((command) => command.kind === kind);
  const key = `stacks-${kind}`;
  const asTable = query.value.get(key) === "table";
  const order = orderShown();
  const others = useMemo(() => otherThreads(stacks, kind), [stacks, kind]);
  return (
    <section class="panel" aria-labelledby={key}>
      <div class="panel-head">
        <h2 id={key}>{KIND_WORD[kind]}</h2>
        <span class="faint">{commandWords(commands)}</span>
        <div class="panel-tools">
          <OrderSwitch columns={cells} />
          <button type="button" aria-pressed={asTable} onClick={() => setQuery({ [key]: asTable ? null : "table" })}>
            View as table
          </button>
        </div>
      </div>
      {asTable ? (
        <StacksTable marked={marked} cells={cells} looks={stacks.looks} selected={selected} onSelect={onSelect} />
      ) : cells.rank.length <= BLOCKS_MAX ? (
        <RankBlocks cells={cells} marked={marked} order={order} selected={selected} onSelect={onSelect} />
      ) : (
        <RankCanvas columns={cells} order={order} selected={selected} onSelect={onSelect} />
      )}
      <ClassCards marked={marked} looks={stacks.looks} selected={selected} onSelect={onSelect} />
      {others.length > 0 && (
        <details class="other-threads">
          <summary>{count(others.length, "class", "classes")} of other threads</summary>
          <ClassCards marked={others} looks={stacks.looks} selected={selected} onSelect={onSelect} />
        </details>
      )}
    </section>
  );
}

function commandWords(commands: StacksAnswer["commands"]): string {
  const shown = commands
    .slice(0, 2)
    .map(({ command, count: n }) =>
      command ? `${n.toLocaleString("en-US")} × ${command}` : count(n, "process", "processes"),
    );
  return shown.join(", ") + (commands.length > 2 ? ` and ${commands.length - 2} more commands` : "");
}

interface CardsProps {
  marked: readonly Marked[];
  looks: number;
  selected: number | null;
  onSelect: (rank: number | null) => void;
}

function ClassCards({ marked, looks, selected, onSelect }: CardsProps) {
  const [shown, setShown] = useState(CARDS_SHOWN);
  const same = marked.filter(({ mark }) => mark === "same");
  const odd = marked.filter(({ mark }) => mark !== "same");
  const card = (one: Marked) => (
    <ClassCard key={one.group.id} one={one} looks={looks} selected={selected} onSelect={onSelect} />
  );
  return (
    <ol class="stack-classes" aria-label="Classes of identical stacks, those that stand out first">
      {odd.slice(0, shown).map(card)}
      {odd.length > shown && (
        <li>
          <button type="button" class="more" onClick={() => setShown(shown + 4 * CARDS_SHOWN)}>
            {odd.length - shown} more classes
          </button>
        </li>
      )}
      {same.map(card)}
    </ol>
  );
}

interface CardProps {
  one: Marked;
  looks: number;
  selected: number | null;
  onSelect: (rank: number | null) => void;
}

function ClassCard({ one: { group, mark }, looks, selected, onSelect }: CardProps) {
  const pace = paceWords(group, looks);
  const isQuiet = mark === "same";
  const first = group.ranks[0];
  return (
    <li
      class={`stack-class ${isQuiet ? "quiet" : "stands-out"}`}
      onPointerEnter={() => pointAt(group.ranks)}
      onPointerLeave={() => pointAt([])}
    >
      <p class="stack-class-head">
        <i class={`swatch swatch-${mark}`} aria-hidden="true" />
        <PlaceWord place={group.place} />
        {first !== undefined && (
          <button
            type="button"
            class="link"
            aria-pressed={first === selected}
            onClick={() => onSelect(first === selected ? null : first)}
            title="Show its stacks"
          >
            {group.ranks.length === 1 ? "rank" : "ranks"} {rankRanges(group.ranks, 6)}
          </button>
        )}
        {group.thread && <span class="tag">{group.thread}</span>}
        {group.count !== group.ranks.length && <span class="faint">{count(group.count, "process", "processes")}</span>}
        {pace && <span class={`pace pace-${group.moving === 0 ? "frozen" : "moving"}`}>{pace}</span>}
      </p>
      <p class="stack-said">{group.said}</p>
      <Frames frames={group.frames} current={currentCall(group)} isOpen={!isQuiet} />
    </li>
  );
}

const FRAMES_SHOWN = 5;

/** The innermost calls of who stands out; the many are folded. */
function Frames({ frames, current, isOpen }: { frames: readonly Frame[]; current: string; isOpen: boolean }) {
  const [isWhole, setWhole] = useState(false);
  if (frames.length === 0) return null;
  const shown = isWhole ? frames : frames.slice(0, FRAMES_SHOWN);
  return (
    <details open={isOpen}>
      <summary>
        <code>{current}</code> <span class="faint">{count(frames.length, "call")}, innermost first</span>
      </summary>
      <ol class="frames">
        {shown.map((frame, n) => (
          <li key={n}>
            <code>{frame.function}</code>{" "}
            <span class="faint">
              {frame.file}
              {frame.line > 0 ? `:${frame.line}` : ""}
            </span>
          </li>
        ))}
      </ol>
      {frames.length > shown.length && (
        <button type="button" class="link faint" onClick={() => setWhole(true)}>
          {count(frames.length - shown.length, "outer call")}
        </button>
      )}
    </details>
  );
}
