"""Stacks as a page shows them: classes of equal stacks per kind of process, the tree of calls, and what was left out.

Everything is bounded, so that ten thousand ranks are one answer. Classes go by the trainer's main thread first; what other
threads do is told apart, since most of it is the same on every rank and says nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from rca.stacks.analysis import TELLING
from rca.stacks.classes import Branch, StackClass, calls, classes_of, prefix_tree
from rca.stacks.places import WAITS, is_evaluating
from rca.stacks.process import LOADER, MAIN_THREAD, TRAINER, WRITER, Frame, Process, Stack

GROUPS_MAX: Final = 500
OTHER_THREADS_MAX: Final = 200
DEEP_GROUPS: Final = 50
"""So many of the largest groups have all their frames, among them the one that others are compared to."""
FRAMES_MAX: Final = 60
"""Innermost ones of the other groups."""
NODES_MAX: Final = 2000
COMMANDS_MAX: Final = 50
KINDS: Final = {TRAINER: "trainer", LOADER: "loader", WRITER: "checkpoint"}

Json = dict[str, Any]


def stacks_view(first: Sequence[Process], last: Sequence[Process]) -> Json:
    """commands, groups, other_threads, tree, left_out: JSON of at most so many groups, threads and tree nodes."""
    newest = {(one.rank, one.pid): one for one in (*first, *last)}
    shown = [one for one in newest.values() if one.rank >= 0]
    classes = classes_of(shown)
    mains = [one for one in classes if one.thread == MAIN_THREAD]
    others = [one for one in classes if one.thread != MAIN_THREAD]
    pace = _pace(first, last)
    largest = {one.kind: one.ranks for one in reversed(mains)}
    groups = [_group(number, one, pace, largest) for number, one in enumerate(mains[:GROUPS_MAX])]
    for made, one in zip(groups[:DEEP_GROUPS], mains, strict=False):
        made["frames"] = frames_of(one.stack, len(one.stack))
    threads = [{**_group(number, one, pace, {}), "thread": one.thread} for number, one in enumerate(others)]
    return {
        "looks": 2 if last else 1,
        "commands": _commands(shown),
        "groups": groups,
        "other_threads": threads[:OTHER_THREADS_MAX],
        "tree": _tree(prefix_tree(one for one in mains if one.kind == TRAINER)),
        "left_out": max(len(mains) - GROUPS_MAX, 0) + max(len(others) - OTHER_THREADS_MAX, 0),
    }


def _commands(processes: Sequence[Process]) -> list[Json]:
    counted = Counter((one.kind, one.command) for one in processes if not one.silent)
    return [
        {"kind": KINDS.get(kind, "other"), "command": command, "count": n}
        for (kind, command), n in counted.most_common(COMMANDS_MAX)
    ]


def _pace(first: Sequence[Process], last: Sequence[Process]) -> dict[int, bool]:
    """Rank → whether its trainer was at the same lines at both looks; ranks looked at once are left out."""
    before = {(one.rank, one.pid): one.main for one in first if not one.silent and one.kind == TRAINER}
    return {
        one.rank: before[one.rank, one.pid] == one.main
        for one in last
        if not one.silent and (one.rank, one.pid) in before
    }


def _group(number: int, one: StackClass, pace: dict[int, bool], largest: dict[str, tuple[int, ...]]) -> Json:
    paces = [pace[rank] for rank in one.ranks if rank in pace] if one.kind == TRAINER else []
    return {
        "id": f"{KINDS.get(one.kind, 'other')}-{number}",
        "kind": KINDS.get(one.kind, "other"),
        "place": one.place.value,
        "is_wait": one.place in WAITS,
        "is_telling": one.place in TELLING,
        "said": said_of(one.stack, one.at, one.place.value),
        "ranks": list(one.ranks),
        "count": len(one.ranks),
        "is_dominant": largest.get(one.kind) is one.ranks,
        "frozen": sum(paces),
        "moving": len(paces) - sum(paces),
        "frames": frames_of(one.stack),
    }


def said_of(stack: Stack, at: Frame | None, place: str) -> str:
    """One line: what they do, and the call that tells it."""
    during = "evaluating, " if is_evaluating(stack) else ""
    return f"{during}{place}: {at}" if at is not None else f"{during}{place}"


def frames_of(stack: Stack, at_most: int = FRAMES_MAX) -> list[Json]:
    """The innermost calls, as JSON. What is compared needs all of them: two stacks are, from the outermost call inwards."""
    return [{"function": one.name, "file": one.file, "line": one.line} for one in stack[:at_most]]


def stack_from(frames: Sequence[Json]) -> Stack:
    """What `frames_of` wrote."""
    return tuple(Frame(one["function"], one["file"], one["line"]) for one in frames)


def majority(view: Json | None) -> Stack:
    """What most trainers were doing, by `stacks_view`; () when there are none."""
    groups = view["groups"] if view else []
    most = next((one for one in groups if one["kind"] == "trainer" and one["is_dominant"]), None)
    return stack_from(most["frames"]) if most is not None else ()


def _tree(root: Branch) -> Json:
    """The tree of calls, the branches with most ranks first; beyond NODES_MAX nodes branches are cut."""
    made: Json = {"name": "", "count": len(root.ranks), "children": []}
    queue, n_nodes = [(root, made)], 1
    while queue and n_nodes < NODES_MAX:
        branch, node = queue.pop(0)
        for inner in sorted(branch.inner.values(), key=lambda one: -len(one.ranks)):
            if n_nodes >= NODES_MAX:
                break
            child: Json = {"name": _name(inner.frame), "count": len(inner.ranks), "children": []}
            node["children"].append(child)
            queue.append((inner, child))
            n_nodes += 1
    return made


def _name(frame: Frame | None) -> str:
    return f"{frame.name} ({frame.file})" if frame is not None else ""


def against(mine: Stack, theirs: Stack) -> list[Json]:
    """Lines of two stacks from the outermost inwards: ' ' in both, '-' only theirs, '+' only mine."""
    one, other = tuple(reversed(mine)), tuple(reversed(theirs))
    n = 0
    while n < min(len(one), len(other)) and calls(one[n : n + 1]) == calls(other[n : n + 1]):
        n += 1
    common = [{"op": " ", "line": str(frame)} for frame in one[:n]]
    gone = [{"op": "-", "line": str(frame)} for frame in other[n:]]
    return [*common, *gone, *({"op": "+", "line": str(frame)} for frame in one[n:])]


def as_lines(process: Process) -> str:
    """All threads as text, as py-spy prints them: the raw view."""
    told = []
    for thread in process.threads:
        told.append(f'Thread: "{thread.name}"' + (" (holds the interpreter's lock)" if thread.has_gil else ""))
        told += [f"    {frame}" for frame in thread.stack]
    return "\n".join(told)
