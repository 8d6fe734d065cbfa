"""A look that reads the sampled ranks sees what one that reads everything sees, whatever befalls the job."""

from __future__ import annotations

import numpy as np
import pytest
from asgiref.sync import sync_to_async

from console.incidents.watching.watch import _asks_for_more
from ingest.models import Attempt
from ingest.read import latest_data_ns, read_window
from ingest.traces.narrow import SlowEvidence, read_evidence, read_glance, read_ops_of
from ingest.window import Window
from nccl_instrument.simulate.faults import Fault, make_fault
from nccl_instrument.simulate.layout import Layout
from nccl_instrument.tables import GROUPS
from rca.diagnose import diagnose
from rca.findings import SymptomKind, to_json
from rca.settings import DEFAULT
from rca.slow.iterations import LENGTH_COLUMNS, iteration_lengths
from rca.triggers.look import Look, look
from rca.triggers.normal import ALL, Normal
from rca.triggers.sampling import sampled_ranks
from tests.ingest.conftest import Ingest, ingest, no_traces  # noqa: F401
from tests.nccl_instrument.simulate.jobs import run

SECOND = 10**9
FIFTEEN_NODES = Layout(tp=2, pp=1, dp=15, ranks_per_node=2)
"""More nodes than ranks are sampled, so that a glance leaves some out."""
UNWATCHED = 28  # of the node nobody is sampled on, see the first test
USUAL = Normal(intervals={ALL: {100: 1000}})


def fault(name: str, victim: int, start_s: float = 4.0) -> Fault:
    return make_fault(name, FIFTEEN_NODES, start_s, None, victim, None, 1)


async def sent(ingest: Ingest, monkeypatch: pytest.MonkeyPatch, seconds: float, *faults: Fault) -> int:  # noqa: F811
    """Store a job of so many seconds; its attempt."""
    for batch in run(FIFTEEN_NODES, *faults, seconds=seconds):
        ingest.clock_ns = batch.arrives_ns
        reply = await ingest.post(batch.encoded)
        assert reply.status == 200, reply
    await ingest.write_ledger()
    monkeypatch.setattr(
        "ingest.traces.frame.heard_since_ns", lambda *_: 0
    )  # at any time, though the job's clock is not ours
    return (await Attempt.objects.alatest("pk")).pk


def _sampled(frame: Window) -> list[int]:
    return [int(rank) for rank in sampled_ranks(frame, DEFAULT)]


def _glance(attempt_id: int, back_s: float) -> tuple[Window, Look, bool]:
    """The narrow look, as watch.py takes it, and whether it had to ask for more."""
    start_ns, end_ns, now_ns = _span(attempt_id, back_s)
    window = read_glance(attempt_id, start_ns, end_ns, _sampled, now_ns)
    seen = look(window, USUAL)
    if not _asks_for_more(window, seen):
        return window, seen, False
    window = read_evidence(attempt_id, start_ns, end_ns, now_ns=now_ns)
    return window, look(window, USUAL), True


def _wide(attempt_id: int, back_s: float) -> tuple[Window, Look]:
    start_ns, end_ns, now_ns = _span(attempt_id, back_s)
    window = read_window(attempt_id, start_ns, end_ns, now_ns=now_ns)
    return window, look(window, USUAL)


def _span(attempt_id: int, back_s: float) -> tuple[int, int, int]:
    """A look taken some time ago: what came since is not read."""
    end_ns = latest_data_ns(attempt_id) + 1 - int(back_s * SECOND)
    return end_ns - 15 * SECOND, end_ns, end_ns


async def test_a_glance_at_a_healthy_job_leaves_nodes_out_and_sees_the_same(
    ingest: Ingest, monkeypatch: pytest.MonkeyPatch  # noqa: F811
) -> None:  # fmt: skip
    attempt_id = await sent(ingest, monkeypatch, 6.0)
    narrow, seen, asked = await sync_to_async(_glance)(attempt_id, 0.0)
    wide, expected = await sync_to_async(_wide)(attempt_id, 0.0)
    assert not asked and not seen.symptoms
    assert seen == expected
    assert UNWATCHED in wide.rows("op")["rank"] and UNWATCHED not in narrow.rows("op")["rank"]
    assert len(narrow.rows("flow")) < len(wide.rows("flow")) / 2


async def test_ops_of_the_sampled_ranks_alone_tell_iterations_as_everything_does(
    ingest: Ingest, monkeypatch: pytest.MonkeyPatch  # noqa: F811
) -> None:  # fmt: skip
    attempt_id = await sent(ingest, monkeypatch, 6.0)

    def both() -> tuple[Window, Window]:
        start_ns, end_ns, now_ns = _span(attempt_id, 0.0)
        narrow = read_ops_of(attempt_id, start_ns, end_ns, [3, 8], LENGTH_COLUMNS)
        return narrow, read_window(attempt_id, start_ns, end_ns, now_ns=now_ns)

    narrow, wide = await sync_to_async(both)()
    assert set(narrow.rows("op")["rank"].tolist()) == {3, 8}
    ranks = np.array([3, 8])
    assert len(iteration_lengths(wide, ranks)) > 3
    assert iteration_lengths(narrow, ranks) == iteration_lengths(wide, ranks)


@pytest.mark.parametrize(
    ("name", "victim", "seconds", "kind"),
    [
        ("nic_down", UNWATCHED, 9.0, SymptomKind.FAILURE),
        ("rank_killed", UNWATCHED, 9.0, SymptomKind.FAILURE),
        ("stuck_before", 3, 9.0, SymptomKind.FAILURE),
        ("node_silent", 14, 17.0, SymptomKind.SILENCE),
    ],
)
async def test_a_job_that_stands_still_is_seen_and_diagnosed_as_from_everything(
    ingest: Ingest, monkeypatch: pytest.MonkeyPatch, name: str, victim: int, seconds: float, kind: SymptomKind  # noqa: F811
) -> None:  # fmt: skip
    attempt_id = await sent(ingest, monkeypatch, seconds, fault(name, victim))
    narrow, seen, asked = await sync_to_async(_glance)(attempt_id, 0.0)
    wide, expected = await sync_to_async(_wide)(attempt_id, 0.0)
    assert asked and kind in {symptom.kind for symptom in seen.symptoms}
    assert seen == expected
    assert len(narrow.rows("flow")) < len(wide.rows("flow"))
    for symptom in seen.symptoms:
        assert to_json(diagnose(narrow, symptom)) == to_json(diagnose(wide, symptom))


async def test_the_pace_of_a_job_that_slows_down_is_learned_from_the_sampled_ranks_alone(
    ingest: Ingest, monkeypatch: pytest.MonkeyPatch  # noqa: F811
) -> None:  # fmt: skip
    attempt_id = await sent(ingest, monkeypatch, 8.0, fault("gpu_slow", UNWATCHED))
    _, seen, asked = await sync_to_async(_glance)(attempt_id, 0.0)
    _, expected = await sync_to_async(_wide)(attempt_id, 0.0)
    assert not asked and seen == expected
    assert len(seen.normal.pace.recent) > 5


def newest_of_ranks(rows: np.ndarray) -> dict[int, int]:
    """Rank → its newest tick."""
    return {int(rank): int(rows["tick_ns"][rows["rank"] == rank].max()) for rank in np.unique(rows["rank"])}


async def test_a_diagnosis_of_a_slow_job_reads_no_flows_of_the_time_before(
    ingest: Ingest, monkeypatch: pytest.MonkeyPatch  # noqa: F811
) -> None:  # fmt: skip
    attempt_id = await sent(ingest, monkeypatch, 10.0)
    start_ns, end_ns, _ = await sync_to_async(_span)(attempt_id, 0.0)
    onset_ns = end_ns - SECOND
    narrow = await sync_to_async(read_evidence)(attempt_id, start_ns, end_ns, onset_ns, end_ns)
    wide = await sync_to_async(read_window)(attempt_id, start_ns, end_ns, now_ns=end_ns)
    tables = [table for group in ("ops", "live") for table in GROUPS[group] if table not in ("comm", "progress")]
    assert all(len(narrow.rows(table)) == len(wide.rows(table)) for table in tables)
    assert 0 < len(narrow.rows("progress")) < len(wide.rows("progress"))
    assert newest_of_ranks(narrow.rows("progress")) == newest_of_ranks(wide.rows("progress"))
    assert 0 < len(narrow.rows("flow")) < len(wide.rows("flow"))
    since = wide.rows("flow")["tick_ns"] >= onset_ns - 5 * SECOND
    assert len(narrow.rows("flow")) >= since.sum() > 0


async def test_the_evidence_of_a_slow_job_comes_node_by_node_and_what_was_read_is_kept(
    ingest: Ingest, monkeypatch: pytest.MonkeyPatch  # noqa: F811
) -> None:  # fmt: skip
    attempt_id = await sent(ingest, monkeypatch, 8.0)
    await sync_to_async(_node_by_node)(attempt_id)


def _node_by_node(attempt_id: int) -> None:
    start_ns, end_ns, _ = _span(attempt_id, 0.0)
    source = SlowEvidence(attempt_id, start_ns, end_ns, end_ns - 2 * SECOND, end_ns)
    wide = read_evidence(attempt_id, start_ns, end_ns, end_ns - 2 * SECOND, end_ns)
    some = source.whole(np.array([2, 7]))
    for table in ("op", "process", "flow"):
        assert len(some.rows(table)) == np.isin(wide.rows(table)["node"], [2, 7]).sum() > 0
    everything = source.whole(None)
    assert all(len(everything.rows(table)) == len(wide.rows(table)) for table in ("op", "process", "flow", "nic"))
    glimpse = source.glimpse(end_ns - 3 * SECOND, end_ns - SECOND, ("rank", "done_ns", "net_wait_ns"))
    done_ns, told = glimpse.rows("op")["done_ns"], wide.rows("op")
    assert len(told) > len(done_ns) > 0 and done_ns[done_ns > 0].min() >= end_ns - 3 * SECOND
    assert set(glimpse.rows("op")["rank"]) == set(told["rank"])
    assert told["bytes"].any() and not glimpse.rows("op")["bytes"].any()  # not asked for, so not kept
