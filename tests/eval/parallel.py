"""Cases of a suite, several at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from multiprocessing import active_children, get_context
from typing import TypeVar

Plan = TypeVar("Plan")
Row = TypeVar("Row")


def in_parallel(run: Callable[[Plan], Row], todo: Sequence[Plan], jobs: int) -> Iterator[Row]:
    """The rows as they come. Processes of their own: a case takes a core and leaves memory behind.

    They end at once when the caller is interrupted or wants no more; what they were running is lost.
    """
    if jobs == 1 or len(todo) < 2:
        yield from map(run, todo)
        return
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        waiting: list[Future[Row]] = [pool.submit(run, one) for one in todo]
        try:
            for done in as_completed(waiting):
                yield done.result()
        except BaseException:
            for child in active_children():
                child.terminate()
            raise
