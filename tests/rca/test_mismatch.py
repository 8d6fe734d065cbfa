"""The mismatch rule: members that entered different ops as their n-th."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ingest.window import Window
from nccl_instrument.tables import FUNCS
from rca.diagnose import diagnose
from rca.findings import Component, Diagnosis, FaultKind, Symptom, SymptomKind
from tests.windows import make_window


def with_another_op(window: Window, ranks: list[int], **columns: int) -> Window:
    """The window with the world AllReduce of these ranks changed to something else."""
    live = window.rows("live_op").copy()
    world = live["comm_id"] == window.members["comm_id"][window.members["n_ranks"] == 8][0]
    mask = np.isin(live["rank"], ranks) & world
    for name, value in columns.items():
        live[name][mask] = value
    return replace(window, tables={**window.tables, "live_op": live})


def diagnosed(window: Window) -> Diagnosis:
    return diagnose(window, Symptom(SymptomKind.FAILURE, "job", 1, 1, 2, 0, (), ""))


def test_the_same_op_everywhere_is_no_mismatch() -> None:
    assert all(found.rule != "mismatch" for found in diagnosed(make_window(frozen=3)).findings)


def test_the_rank_with_another_size_is_named() -> None:
    best = diagnosed(with_another_op(make_window(frozen=3), [6], count=4096)).findings[0]
    assert (best.culprits, best.component, best.kind) == ((6,), Component.SOFTWARE, FaultKind.MISMATCH)


def test_the_rank_with_another_function_is_named() -> None:
    best = diagnosed(with_another_op(make_window(frozen=3), [1], func=FUNCS.index("Broadcast"))).findings[0]
    assert best.culprits == (1,)


def test_without_a_majority_nobody_is_blamed() -> None:
    window = with_another_op(make_window(paused=False, nic_down=3), [0, 1, 2, 3], count=4096)
    found = next(f for f in diagnosed(window).findings if f.rule == "mismatch")
    assert (found.culprits, len(found.tied)) == ((), 8)
