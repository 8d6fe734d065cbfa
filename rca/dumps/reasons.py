"""Why a process gave no dump, told once: what runs no Python has no recorder either, however long that was waited for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from nccl_instrument.dumps import NO_PYTHON, RECORDER, STACKS, Silent


def one_reason(silent: Iterable[Silent]) -> list[Silent]:
    """The same, each process with one reason for all that was asked of it."""
    known = list(silent)
    others = {one.rank: one.why for one in known if one.kind == STACKS and one.why.startswith(NO_PYTHON)}
    return [replace(one, why=others[one.rank]) if one.kind == RECORDER and one.rank in others else one for one in known]
