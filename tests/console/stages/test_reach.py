"""A pass over stages reads no more than is not cut yet and so many rows, and no node's clock moves it."""

from __future__ import annotations

import numpy as np
import pytest
from asgiref.sync import sync_to_async

from console.stages import reach
from ingest.models import Attempt, Node
from rca.frontier.cutting import ROWS_MAX
from rca.settings import SECOND_NS
from tests.console.stages.training import Training
from tests.ingest.conftest import Ingest, ingest, no_traces

__all__ = ["ingest", "no_traces"]  # fixtures
BACK = 75 * SECOND_NS
NOW = 1_790_000_000 * SECOND_NS


def test_what_has_been_cut_is_not_read_again() -> None:
    assert reach.start_ns({}, NOW, BACK) == NOW - BACK
    cut = {"ended_ns": NOW - 10 * SECOND_NS}
    assert reach.start_ns({"pp 0": cut}, NOW, BACK) == NOW - 15 * SECOND_NS
    assert reach.start_ns({"pp 0": cut, "pp 1": {"ended_ns": NOW - 500 * SECOND_NS}}, NOW, BACK) == NOW - BACK
    assert reach.start_ns({"pp 0": cut, "pp 1": {"ended_ns": 0}}, NOW, BACK) == NOW - BACK  # in its warm-up
    assert reach.start_ns({"pp 0": {"ended_ns": NOW + 100 * SECOND_NS}}, NOW, BACK) == NOW


@pytest.mark.parametrize("n_ranks", [1, 8, 1_000, 10_000, 100_000])
@pytest.mark.parametrize("step_s", [None, 0.0, 0.02, 0.1, 5.0, 60.0])
def test_a_stretch_holds_so_many_rows_however_many_ranks_and_however_short_the_steps(
    n_ranks: int, step_s: float | None
) -> None:
    seconds = reach.span_ns(n_ranks, step_s) / SECOND_NS
    assert 5 <= seconds <= 120
    rows = n_ranks * seconds / (step_s or reach.STEP_S_MIN)
    assert rows <= max(ROWS_MAX, n_ranks * 5 / (step_s or reach.STEP_S_MIN)) * 1.001
    assert np.isfinite(rows)


@pytest.mark.django_db(transaction=True)
async def test_a_node_whose_clock_is_an_hour_ahead_moves_nothing(ingest: Ingest) -> None:
    training = Training(ingest)
    await training.train(60)
    attempt = await Attempt.objects.alatest("pk")
    before = await sync_to_async(reach.newest_ns)(attempt.pk)
    heard = max([node.received_ns async for node in Node.objects.filter(attempt=attempt)])
    node = await Node.objects.filter(attempt=attempt).afirst()
    assert node is not None
    node.watermark_ns += 3600 * SECOND_NS
    await node.asave()
    after = await sync_to_async(reach.newest_ns)(attempt.pk)
    assert before <= after <= heard + 5 * SECOND_NS
    assert await sync_to_async(reach.stretch_ns)(attempt.pk) == reach.STRETCH_NS
