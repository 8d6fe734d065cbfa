"""Libraries that do not keep every counter: what is absent is never read as 0, and rules that need it abstain and say so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ingest.window import Window
from nccl_instrument.tables import (
    CONSUMED,
    COUNTERS_SEEN,
    GPU_READY,
    LACKS_DONE,
    LACKS_GPU_READY,
    LACKS_TRANSMITTED,
    SEND,
)
from rca.counters import absent, abstentions, marked, needs_of
from rca.diagnose import diagnose
from rca.findings import Diagnosis, State, Symptom, SymptomKind
from rca.rules import hang, late_start, slow_copy, slow_nic, slow_proxy
from rca.slow.diagnose import RULES
from tests.nccl_instrument.simulate.jobs import EIGHT, window_after
from tests.rca import test_recorded, test_slowdown
from tests.windows import make_window

HANGS = sorted(path.stem for path in test_recorded.FOLDER.glob("*.npz"))
SAID = "GPU_ready is not counted by this library"


def diagnosed(window: Window, kind: SymptomKind = SymptomKind.FAILURE) -> Diagnosis:
    at_ns = window.start_ns + test_slowdown.ONSET_NS
    return diagnose(window, Symptom(kind, "job", 1, at_ns, window.now_ns, 0, (), ""))


def declaring(window: Window, bits: int) -> Window:
    """The window of a job whose ranks declare what they lack."""
    ranks = window.ranks.copy()
    ranks["counters_seen"] |= bits
    return replace(window, ranks=ranks)


def without_gpu_ready(window: Window) -> Window:
    """As a library reports that does not count GPU_ready, nor the waits that follow from it, and declares nothing."""
    tables = {name: window.rows(name).copy() for name in ("flow", "op", "live_op")}
    flow = tables["flow"]
    flow["counters"][flow["direction"] == SEND, GPU_READY] = 0
    flow["gpu_wait_ns"][flow["direction"] == SEND] = 0
    for name in ("op", "live_op"):
        tables[name]["gpu_wait_ns"] = tables[name]["receive_gpu_wait_ns"]
    return replace(window, tables={**window.tables, **tables})


def without_consumed(window: Window) -> Window:
    """And does not count what GPUs consume."""
    flow = window.rows("flow").copy()
    flow["counters"][flow["direction"] != SEND, CONSUMED] = 0
    return replace(window, tables={**window.tables, "flow": flow})


def recorded(name: str) -> Window:
    return test_recorded.load_recorded(test_recorded.FOLDER / f"{name}.npz")


def test_a_library_that_keeps_all_counters_loses_nothing() -> None:
    window = make_window(nic_down=3)
    assert marked(window) is window
    assert absent(marked(window)) == frozenset()
    assert not any("not counted" in said for said in diagnosed(window).missing)


def test_what_was_only_not_seen_yet_is_not_absent() -> None:
    window = make_window(stuck_before=3)
    assert not absent(marked(replace(window, tables={**window.tables, "flow": window.rows("flow")[:0]})))
    assert not absent(marked(declaring(window, COUNTERS_SEEN)))


@pytest.mark.parametrize("name", HANGS)
def test_columns_of_zeros_are_taken_as_absent_and_blame_nobody_wrongly(name: str) -> None:
    usual = diagnosed(recorded(name))
    found = diagnosed(without_gpu_ready(recorded(name)))
    assert any(said.startswith(SAID) for said in found.missing)
    assert not {rank for one in found.findings for rank in one.culprits} - set(usual.culprits)
    states = {condition.state for one in found.findings for condition in one.conditions}
    assert not states & {State.NOT_TRANSMITTED, State.GPU_NOT_READY}


@pytest.mark.parametrize("name", ["killed_4", "frozen_6", "stuck_before_4", "nic_down_1"])
def test_what_needs_no_gpu_ready_is_named_as_ever(name: str) -> None:
    usual = diagnosed(recorded(name))
    for window in (without_gpu_ready(recorded(name)), declaring(recorded(name), LACKS_GPU_READY)):
        found = diagnosed(window)
        assert (found.culprits, found.findings[0].component) == (usual.culprits, usual.findings[0].component)


@pytest.mark.parametrize("name", HANGS)
def test_nobody_else_is_found_where_what_gpus_consume_is_not_counted_either(name: str) -> None:
    """A 0 would read as data that lies at every GPU."""
    lacking = declaring(recorded(name), LACKS_GPU_READY)
    found, usual = diagnosed(without_consumed(lacking)), diagnosed(lacking)
    assert {one.subject.name for one in found.findings} <= {one.subject.name for one in usual.findings}
    assert found.culprits == usual.culprits


def test_a_gpu_that_stops_is_not_judged_without_gpu_ready() -> None:
    window = window_after("gpu_error", EIGHT, 5, at_s=4.0, seconds=15.5)
    assert diagnosed(window).findings[0].subject.kind == "gpu"
    for other in (without_gpu_ready(window), declaring(window, LACKS_GPU_READY)):
        found = diagnosed(other)
        assert all(one.subject.kind != "gpu" for one in found.findings)
        assert any(said.startswith(SAID) for said in found.missing)


@pytest.mark.parametrize("bits", [LACKS_TRANSMITTED, LACKS_DONE])
def test_without_what_was_transmitted_only_who_has_not_entered_is_told(bits: int) -> None:
    found = diagnosed(declaring(make_window(stuck_before=5), bits))
    assert (found.culprits, found.findings[0].conditions) == ((5,), ())
    assert any("only who has not entered an op can be told" in said for said in found.missing)
    assert set(diagnosed(declaring(make_window(nic_down=3), bits)).culprits) <= {3}


@pytest.mark.parametrize("name", ["slow_copies_2", "slow_copies_7", "slow_compute_3"])
def test_slow_gpus_are_not_judged_without_gpu_ready_and_it_is_said_which_rules_abstain(name: str) -> None:
    window = test_slowdown.recorded(name)
    for other in (without_gpu_ready(window), declaring(window, LACKS_GPU_READY)):
        found = diagnosed(other, SymptomKind.STRAGGLER)
        assert found.culprits == ()
        for rule in ("slow_copy", "late_start", "slow_proxy"):
            assert f"Rule {rule} abstains: GPU_ready is not counted by this library." in found.missing


@pytest.mark.parametrize("name", ["nic_limit_1", "nic_limit_4"])
def test_a_slow_nic_needs_no_gpu_ready(name: str) -> None:
    found = diagnosed(without_gpu_ready(test_slowdown.recorded(name)), SymptomKind.STRAGGLER)
    assert found.culprits == test_slowdown.TRUTH[name][0]
    lacking = diagnosed(declaring(test_slowdown.recorded(name), LACKS_DONE), SymptomKind.STRAGGLER)
    assert "Rule slow_nic abstains: RDMA_done is not counted by this library." in lacking.missing


def test_every_rule_of_slowdowns_says_what_it_needs() -> None:
    assert all(needs_of(rule) for rules in RULES for rule in rules)
    assert needs_of(slow_copy.explain) == {"GPU_ready"} == needs_of(late_start.explain)
    assert needs_of(slow_nic.explain) == {"RDMA_transmitted", "RDMA_done"} < needs_of(slow_proxy.explain)
    assert abstentions([hang.explain], frozenset({"GPU_ready"})) == ()
