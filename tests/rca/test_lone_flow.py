"""One slow channel among many is told from a slow NIC, a slow GPU and nothing at all, chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ingest.window import Window
from nccl_instrument.tables import SOCKET
from rca.diagnose import diagnose
from rca.findings import Component, Diagnosis, Grade, Symptom, SymptomKind
from rca.settings import DEFAULT
from rca.slow.lone_flow import LoneFlow, lone_flow
from rca.slow.slowdown import slowdown_of
from tests.rca.chunks import MS, ring_window

N, SINCE = 4, 35
COPY_MS, WIRE_MS, SLOW_MS = 0.3, 1.0, 6.0
Where = Callable[[np.ndarray], None]


def everywhere(times: np.ndarray) -> None:
    times[:] = SLOW_MS


def on_a_nic(times: np.ndarray) -> None:
    times[1] = SLOW_MS


def on_one_channel(times: np.ndarray) -> None:
    times[1, times.shape[1] // 2] = SLOW_MS


def nowhere(times: np.ndarray) -> None:
    del times


def window(channels: int, *, wire: Where = nowhere, copy: Where = nowhere) -> Window:
    """A ring of four; since iteration 35 what is sent, or copied, is slow there."""

    def times(usual_ms: float, change: Where) -> Callable[[int], np.ndarray]:
        def of(iteration: int) -> np.ndarray:
            found = np.full((N, channels, 1), usual_ms)
            if iteration >= SINCE:
                change(found)
            return found

        return of

    return ring_window(N, channels, ("AllGather",), times(COPY_MS, copy), times(WIRE_MS, wire))


def onset_ns(seen: Window) -> int:
    enqueued = np.sort(np.unique(seen.rows("op")["enqueued_ns"][seen.rows("op")["rank"] == 0]))
    return int(enqueued[SINCE]) - MS


def found(seen: Window) -> LoneFlow | None:
    slowdown = slowdown_of(seen, onset_ns(seen), DEFAULT)
    return lone_flow(slowdown) if slowdown else None


def diagnosed(seen: Window) -> Diagnosis:
    return diagnose(seen, Symptom(SymptomKind.STRAGGLER, seen.job, 1, onset_ns(seen), seen.end_ns, 0, (0,), "slow"))


@pytest.mark.parametrize("where", [nowhere, on_a_nic, everywhere])
@pytest.mark.parametrize("channels", [2, 8])
def test_where_all_channels_are_alike_none_of_them_is_alone(where: Where, channels: int) -> None:
    assert found(window(channels, wire=where)) is None


@pytest.mark.parametrize("where", [on_a_nic, on_one_channel])
def test_copies_are_no_slow_way(where: Where) -> None:
    seen = window(8, copy=where)
    assert found(seen) is None
    assert all(one.component is not Component.NETWORK for one in diagnosed(seen).findings)


@pytest.mark.parametrize("channels", [2, 4, 8, 16])
def test_the_one_channel_that_is_slow_is_found_however_many_there_are(channels: int) -> None:
    lone = found(window(channels, wire=on_one_channel))
    assert lone is not None
    assert (lone.sender, lone.receiver, lone.channel, lone.n_channels) == (1, 2, channels // 2, channels)


def test_nobody_is_blamed_for_it_and_both_ends_are_tied() -> None:
    best = diagnosed(window(16, wire=on_one_channel)).findings[0]
    assert (best.component, best.culprits, best.grade) == (Component.NETWORK, (), Grade.WEAK)
    assert {rank for one in best.tied for rank in one.ranks} == {1, 2} and best.subject.kind == "flow"
    assert "channel 8 of 16" in best.sentence


def test_a_slow_nic_is_still_a_slow_nic() -> None:
    best = diagnosed(window(16, wire=on_a_nic)).findings[0]
    assert best.rule == "slow_nic" and best.subject.kind != "flow"


def test_over_sockets_it_is_not_told() -> None:
    seen = window(8, wire=on_one_channel)
    seen.ranks["transport"] = SOCKET
    assert found(seen) is None
