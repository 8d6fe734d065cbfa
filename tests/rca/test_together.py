"""Ranks of a node that stopped behind the same op are one GPU's doing, and one that stopped alone is its program's.

The window was simulated (64 GPUs, TP 4, two stages, experts in pairs inside the node): the GPU of rank 52 executes nothing
since the end of a step, and 48 and 53 to 55 entered nothing any more. Only its last seconds are kept.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from ingest.window import Window, load_window
from rca.diagnose import diagnose
from rca.findings import Component, FaultKind, Grade, Symptom, SymptomKind
from rca.hang.progress import state_of
from rca.hang.sinks import sinks
from rca.hang.together import once_together
from rca.settings import DEFAULT
from tests.windows import make_window

STOPPED = (48, 52, 53, 54, 55)


@cache
def stopped() -> Window:
    return load_window(Path(__file__).parent / "recorded_in_node" / "gpu_error_52.npz")


def changed(table: str, ranks: tuple[int, ...], *comms: str, **columns: int) -> Window:
    """The window with these columns of these ranks in these communicators raised by so much."""
    rows, members = stopped().rows(table).copy(), stopped().members
    ids = members["comm_id"][np.isin(members["name"], comms)]
    those = np.isin(rows["rank"], ranks) & np.isin(rows["comm_id"], ids)
    for name, more in columns.items():
        rows[name][those] += more
    return replace(stopped(), tables={**stopped().tables, table: rows})


def joined(window: Window) -> list[tuple[int, ...]]:
    """Ranks of the sinks that were made of several."""
    state = state_of(window, DEFAULT)
    found = once_together(state, sinks(state))
    return [state.ranks.names(np.array(sink.ranks)) for sink in found if sink.is_in_node]


@pytest.mark.parametrize("rank", [0, 3, 6])
def test_a_program_that_stops_alone_is_joined_with_nobody(rank: int) -> None:
    assert joined(make_window(stuck_before=rank)) == []


def test_those_who_stopped_behind_another_op_are_not_joined() -> None:
    assert joined(stopped()) == [STOPPED]
    later = stopped().rows("progress")["last_enqueued_ns"].max() - stopped().rows("progress")["last_enqueued_ns"].min()
    ahead = changed("progress", (48, 53), "tp_12", "tp_13", last_enqueued_ns=int(later))
    assert joined(ahead) == [(52, 54, 55)]


def test_nor_are_those_who_are_all_seen_to_be_through_it() -> None:
    assert joined(changed("progress", STOPPED, "world", n_done=10**6)) == []


def test_nor_are_ranks_whose_processes_are_seen_to_have_stopped() -> None:
    rows = stopped().rows("process").copy()
    rows["state"][[rank in STOPPED for rank in rows["rank"].tolist()]] = ord("T")
    assert joined(replace(stopped(), tables={**stopped().tables, "process": rows})) == []


def test_one_of_those_who_stopped_together_keeps_its_node_and_none_is_called_its_programs_doing() -> None:
    window = stopped()
    symptom = Symptom(SymptomKind.FAILURE, window.job, 1, window.end_ns - 30 * 10**9, window.end_ns, 0, (0,), "stands")
    best = diagnose(window, symptom).findings[0]
    assert (best.culprits, best.component, best.grade) == ((), Component.PROCESS, Grade.WEAK)
    assert (best.kind, best.subject.name) == (FaultKind.COMPUTATION_FAIL_STOP, "node6")
    assert {rank for one in best.tied for rank in one.ranks} == set(STOPPED)
    assert "or its program stopped there" in best.sentence
