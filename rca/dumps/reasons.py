"""Why a process gave no dump, told once: what runs no Python has no recorder either, however long that was waited for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from nccl_instrument.dumps import NO_PYTHON, RECORDER, STACKS, Silent


def one_reason(silent: Iterable[Silent]) -> list[Silent]:
    """The same, each process with one reason for all that was asked of it."""
    known = list(silent)
    others = {one.rank: _of_recorder(one.why) for one in known if one.kind == STACKS and one.why.startswith(NO_PYTHON)}
    return [replace(one, why=others[one.rank]) if one.kind == RECORDER and one.rank in others else one for one in known]


def _of_recorder(why: str) -> str:
    """The reason why there is no stack, said of the recorder: both follow from what the process is."""
    return why.replace("it has no Python stack", "it has no flight recorder")
