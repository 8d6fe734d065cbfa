"""The contexts of a stage recorder: made once per stage, entered in every step. Needs neither torch nor numpy."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

Kind = type[BaseException] | None
Context = TypeVar("Context")


class StageContext:
    """One stage: `enter(at)`, `leave()`."""

    __slots__ = ("_at", "_enter", "_leave")

    def __init__(self, enter: Callable[[int], None], leave: Callable[[], None], at: int) -> None:
        self._enter, self._leave, self._at = enter, leave, at

    def __enter__(self) -> None:
        self._enter(self._at)

    def __exit__(self, kind: Kind, error: BaseException | None, where: TracebackType | None) -> None:
        self._leave()


class StepContext:
    """One step: `begin()`, `end(is_broken=...)`."""

    __slots__ = ("_begin", "_end")

    def __init__(self, begin: Callable[[], None], end: Callable[..., None]) -> None:
        self._begin, self._end = begin, end

    def __enter__(self) -> None:
        self._begin()

    def __exit__(self, kind: Kind, error: BaseException | None, where: TracebackType | None) -> None:
        self._end(is_broken=kind is not None)


class SideContext:
    """A nested probe by the host's clock: `tell(at, ns)`."""

    __slots__ = ("_at", "_began_ns", "_clock", "_tell")

    def __init__(self, clock: Callable[[], int], tell: Callable[[int, int], None], at: int) -> None:
        self._clock, self._tell, self._at = clock, tell, at
        self._began_ns = 0

    def __enter__(self) -> None:
        self._began_ns = self._clock()

    def __exit__(self, kind: Kind, error: BaseException | None, where: TracebackType | None) -> None:
        self._tell(self._at, self._clock() - self._began_ns)


class DeviceContext:
    """A region whose time on the device is sampled: `stop(at, start())`."""

    __slots__ = ("_at", "_start", "_started", "_stop")

    def __init__(self, start: Callable[[], Any], stop: Callable[[int, Any], None], at: int) -> None:
        self._start, self._stop, self._at = start, stop, at
        self._started: Any = None

    def __enter__(self) -> None:
        self._started = self._start()

    def __exit__(self, kind: Kind, error: BaseException | None, where: TracebackType | None) -> None:
        self._stop(self._at, self._started)


class NoContext:
    """In place of a side channel that the schema does not have: counted by `count()`, and nothing else."""

    __slots__ = ("_count",)

    def __init__(self, count: Callable[[], None]) -> None:
        self._count = count

    def __enter__(self) -> None:
        self._count()

    def __exit__(self, kind: Kind, error: BaseException | None, where: TracebackType | None) -> None:
        return None


def known(contexts: dict[str, Context], name: Any) -> Context | None:
    """The context of this name; None for what is no name at all, too."""
    try:
        return contexts.get(name)
    except TypeError:
        return None
