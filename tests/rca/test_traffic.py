"""What a NIC carries for others is told from the job's own bursts, which its counters catch unevenly."""

from __future__ import annotations

import numpy as np
import pytest

from rca.settings import DEFAULT, SECOND_NS
from rca.slowdown import slowdown_of
from rca.traffic import sent_per_ns, share_of
from tests.rca.test_slowdowns_simulated import ONSET_NS, RING, slow

GB = 10**9


def per_iteration(iteration_s: float, seconds: int, *, others_per_s: float = 0.0) -> tuple[float, float]:
    """Of a NIC that is read every second: a burst of 9 GB in the last third of every iteration, and others' bytes."""
    ticks = np.arange(seconds)
    whole, part = np.divmod(ticks / iteration_s, 1.0)
    sent = 9 * GB * (whole + np.clip(3 * part - 2, 0, 1)) + others_per_s * ticks
    found = sent_per_ns(ticks * SECOND_NS, sent.astype(np.int64))
    assert found is not None
    return found[0] * iteration_s * SECOND_NS, found[1] * iteration_s * SECOND_NS


@pytest.mark.parametrize("iteration_s", [0.3, 0.7, 1.45, 2.6])
@pytest.mark.parametrize("seconds", [4, 7, 20, 40])
def test_bursts_of_the_job_are_nobody_elses_however_few_are_seen(iteration_s: float, seconds: int) -> None:
    assert share_of(per_iteration(0.63, 10), per_iteration(iteration_s, seconds)) == 0.0


@pytest.mark.parametrize("iteration_s", [0.7, 1.45, 2.6])
def test_others_bytes_are_seen_beyond_the_bursts(iteration_s: float) -> None:
    others_per_s = 9 * GB / iteration_s
    assert share_of(per_iteration(0.63, 20), per_iteration(iteration_s, 20, others_per_s=others_per_s)) > 0.4


def test_too_few_readings_tell_nothing() -> None:
    assert sent_per_ns(np.arange(2), np.arange(2)) is None


def test_the_last_iteration_which_has_no_end_is_none_of_before() -> None:
    slowdown = slowdown_of(slow("nic_limited", RING, 1, 0.4), ONSET_NS, DEFAULT)
    assert slowdown is not None
    assert slowdown.slow[-1] and not (slowdown.usual & slowdown.slow).any()
