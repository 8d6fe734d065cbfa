"""Ranks whose stacks are the same, per kind of process: the many are quiet, the few stand out (Mycroft §6.2).

Stacks are compared by function and file, not by line: two ranks of one loop are in one class although one is a line
ahead. The tree of all calls tells where the classes part.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from rca.stacks.places import Place, place_of
from rca.stacks.process import KINDS, MAIN_THREAD, Frame, Process, Stack

Key = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class StackClass:
    """Ranks with the same calls in one thread of one kind of process, the largest class first.

    kind, thread: whose stacks they are. stack: of one of them. place, at: what it is doing, and which call tells.
    """

    kind: str
    thread: str
    ranks: tuple[int, ...]
    stack: Stack
    place: Place
    at: Frame | None


def classes_of(processes: Iterable[Process]) -> list[StackClass]:
    """Classes by kind of process, thread and size; processes that could not be read are in none."""
    found: dict[tuple[str, str, Key], tuple[list[int], Stack]] = {}
    for process in processes:
        kind = process.kind if not process.silent else ""
        for thread in process.threads if kind else ():
            key = (kind, _thread_kind(thread.name), calls(thread.stack))
            found.setdefault(key, ([], thread.stack))[0].append(process.rank)
    made = [
        StackClass(kind, thread, tuple(sorted(set(ranks))), stack, *place_of(stack))
        for (kind, thread, _), (ranks, stack) in found.items()
    ]
    return sorted(made, key=lambda one: (KINDS.index(one.kind), one.thread != MAIN_THREAD, one.thread, -len(one.ranks)))


def calls(stack: Stack) -> Key:
    """What makes two stacks the same."""
    return tuple((frame.name, frame.file) for frame in stack)


def _thread_kind(name: str) -> str:
    """Pool threads are numbered, and the numbers differ from rank to rank."""
    return name.rstrip("0123456789").rstrip("-_ ") or name


@dataclass(slots=True)
class Branch:
    """A call in the tree of all stacks, from the outermost inwards, and which ranks are in it."""

    frame: Frame | None
    ranks: set[int] = field(default_factory=set)
    inner: dict[tuple[str, str], Branch] = field(default_factory=dict)


def prefix_tree(classes: Iterable[StackClass]) -> Branch:
    """The calls of these classes as one tree; its root has all ranks and no call."""
    root = Branch(None)
    for one in classes:
        branch = root
        branch.ranks.update(one.ranks)
        for frame in reversed(one.stack):
            branch = branch.inner.setdefault((frame.name, frame.file), Branch(frame))
            branch.ranks.update(one.ranks)
    return root


def difference(one: Stack, other: Stack) -> tuple[Stack, Stack, Stack]:
    """(calls in common, only the first's, only the second's), each from the outermost inwards."""
    first, second = tuple(reversed(one)), tuple(reversed(other))
    n = 0
    while n < min(len(first), len(second)) and calls(first[n : n + 1]) == calls(second[n : n + 1]):
        n += 1
    return first[:n], first[n:], second[n:]
