"""What a NIC carries for others is told from the job's own bursts, which its counters catch unevenly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from ingest.window import Window
from nccl_instrument.simulate.faults import make_fault
from nccl_instrument.simulate.layout import Layout
from nccl_instrument.tables import RECEIVE, SEND
from rca.findings import Component
from rca.keys import Rows
from rca.rules import slow_nic
from rca.settings import DEFAULT, SECOND_NS
from rca.slow.ends import Ends
from rca.slow.slowdown import slowdown_of
from rca.slow.traffic import DIRECTIONS, foreign_shares, job_bytes, per_ns, share_of
from tests.nccl_instrument.simulate.jobs import EIGHT
from tests.rca.test_slowdowns_simulated import ONSET_NS, RING, diagnosed, slow

GB = 10**9


def per_iteration(
    iteration_s: float, seconds: int, *, others_per_s: float = 0.0, reset: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Of a NIC that is read every second: a burst of 9 GB in the last third of every iteration, and others' bytes."""
    ticks = np.arange(seconds)
    whole, part = np.divmod(ticks / iteration_s, 1.0)
    sent = (9 * GB * (whole + np.clip(3 * part - 2, 0, 1)) + others_per_s * ticks).astype(np.int64)
    if reset:
        sent[seconds // 2 :] -= sent[seconds // 2]
    rate, off = per_ns(np.zeros(seconds, np.uint64), ticks * SECOND_NS, sent)
    return rate * iteration_s * SECOND_NS, off * iteration_s * SECOND_NS


@pytest.mark.parametrize("iteration_s", [0.3, 0.7, 1.45, 2.6])
@pytest.mark.parametrize("seconds", [4, 7, 20, 40])
def test_bursts_of_the_job_are_nobody_elses_however_few_are_seen(iteration_s: float, seconds: int) -> None:
    assert share_of(per_iteration(0.63, 10), per_iteration(iteration_s, seconds)) == 0.0


@pytest.mark.parametrize("iteration_s", [0.7, 1.45, 2.6])
def test_others_bytes_are_seen_beyond_the_bursts(iteration_s: float) -> None:
    others_per_s = 9 * GB / iteration_s
    assert share_of(per_iteration(0.63, 20), per_iteration(iteration_s, 20, others_per_s=others_per_s)) > 0.4


def test_too_few_readings_and_a_counter_that_went_back_tell_nothing() -> None:
    assert np.isnan(share_of(per_iteration(0.63, 20), per_iteration(0.7, 2)))
    assert np.isnan(share_of(per_iteration(0.63, 20), per_iteration(0.7, 20, reset=True)))


def test_nics_are_read_apart() -> None:
    one, other = (np.arange(5) * rate for rate in (3, 7))
    rate, off = per_ns(
        np.repeat(np.arange(2).astype(np.uint64), 5), np.tile(np.arange(5), 2), np.concatenate([one, other])
    )
    assert rate.tolist() == [3, 7] and off.tolist() == [0, 0]


def carrying(rows: Rows, share: float, nodes: tuple[int, ...] = (), from_ns: int = 0) -> Rows:
    """The readings with others' bytes on the ports of these nodes, all without any: a share of what node 0's first port
    carries for the job in the healthy time, every second of the window since then."""
    first = rows[(rows["node"] == 0) & (rows["index"] == rows["index"].min()) & (rows["tick_ns"] < ONSET_NS)]
    per_ns = (int(first["tx_bytes"][-1]) - int(first["tx_bytes"][0])) / int(np.ptp(first["tick_ns"]))
    since = np.maximum(rows["tick_ns"] - max(from_ns, int(rows["tick_ns"].min())), 0)
    others = np.where(np.isin(rows["node"], nodes) | (not nodes), since * per_ns * share, 0)
    for counter, _ in DIRECTIONS:
        rows[counter] += others.astype(rows.dtype[counter])
    return rows


def with_others(window: Window, share: float, nodes: tuple[int, ...] = (), from_ns: int = 0) -> Window:
    nic = carrying(window.rows("nic").copy(), share, nodes, from_ns)
    return replace(window, tables={**window.tables, "nic": nic})


@pytest.mark.parametrize("share", [0.1, 0.2, 0.5])
@pytest.mark.parametrize("nodes", [(), (0,)])
@pytest.mark.parametrize(("layout", "victim"), [(RING, 1), (EIGHT, 2)])
def test_others_who_were_always_there_are_not_blamed_for_a_slow_nic(
    layout: Layout, victim: int, nodes: tuple[int, ...], share: float
) -> None:
    found = diagnosed(with_others(slow("nic_limited", layout, victim, 0.15), share, nodes)).findings
    assert (found[0].component, found[0].culprits) == (Component.NIC, (victim,))


def test_traffic_that_begins_is_told_from_traffic_that_was_always_there() -> None:
    window = slow("background_traffic", RING, 1, 0.65)
    ranks = set(make_fault("background_traffic", RING, 1, None, 1).ranks)
    for nodes in ((), tuple({0, 1, 2, 3} - ranks)):
        found = diagnosed(with_others(window, 0.2, nodes)).findings
        assert (found[0].component, set(found[0].culprits)) == (Component.NETWORK, ranks)
        assert "taken by other traffic" in found[0].sentence


@pytest.mark.parametrize(("elsewhere_ms", "chosen", "taken"), [(128, 1, (1, 2)), (300, 1, ()), (128, 3, ())])
def test_ports_that_count_others_bytes_need_not_explain_what_fell_in_line_elsewhere(
    elsewhere_ms: int, chosen: int, taken: tuple[int, ...]
) -> None:
    """Seven ops that now meet others on their NICs, beside the connections of two NICs whose links are taken."""
    costs_ms = np.array([415, 403, 235, 80] + [elsewhere_ms] * 7)
    sender = np.array([0, 1, 1, 2, *range(3, 10)])
    receiver = np.array([1, 0, 2, 1, *range(10, 17)])
    usual_ns, nobody = np.full(len(sender), 1e8), np.zeros(0, np.int64)
    ends = Ends(sender, receiver, usual_ns, usual_ns + costs_ms * 1e6, usual_ns * 10, np.ones(len(sender), bool),
                (chosen,), ((),), nobody, (), False, False)  # fmt: skip
    shares = np.where(np.isin(np.arange(17), (1, 2)), 0.6, 0.0)
    assert slow_nic._taken(ends, np.arange(17), shares) == taken


def test_traffic_that_begins_on_all_ports_alike_does_not_tell_which_nic_is_slow() -> None:
    window = slow("nic_limited", RING, 1, 0.15)
    window = with_others(window, 0.5, from_ns=ONSET_NS)
    assert min(shares_of(window)) > 0.2
    found = diagnosed(window).findings
    assert (found[0].component, found[0].culprits) == (Component.NIC, (1,))


@pytest.mark.parametrize("layout", [RING, EIGHT])
@pytest.mark.parametrize("direction", [SEND, RECEIVE])
def test_the_records_tell_what_the_job_itself_sends(layout: Layout, direction: int) -> None:
    """What ports of a job alone on its network count is the job's; without rows of flows less is known, never more."""
    slowdown = slowdown_of(slow("nic_limited", layout, 1, 0.3), ONSET_NS, DEFAULT)
    assert slowdown is not None
    nics, rows = slowdown.ranks.nics, slowdown.window.rows("nic")
    own = job_bytes(slowdown, direction, np.ones(len(nics), bool))
    counter = {way: name for name, way in DIRECTIONS}[direction]
    for at, nic in enumerate(nics):
        mine = rows[(rows["node"] == nic["node"]) & (rows["index"] == nic["index"]) & (rows["tick_ns"] < ONSET_NS)]
        passed = (int(mine[counter][-1]) - int(mine[counter][0])) * slowdown.usual_ns / int(np.ptp(mine["tick_ns"]))
        assert own[at] == pytest.approx(passed, rel=0.05)
    blind = replace(slowdown.window, tables={**slowdown.window.tables, "flow": slowdown.window.rows("flow")[:0]})
    assert (job_bytes(replace(slowdown, window=blind), direction, np.ones(len(nics), bool)) <= own).all()


def test_steady_traffic_is_not_taken_for_new_where_no_flow_was_seen() -> None:
    window = with_others(slow("nic_limited", RING, 1, 0.15), 0.5)
    assert max(shares_of(replace(window, tables={**window.tables, "flow": window.rows("flow")[:0]}))) < 0.1


def shares_of(window: Window) -> list[float]:
    slowdown = slowdown_of(window, ONSET_NS, DEFAULT)
    assert slowdown is not None
    return np.append(foreign_shares(slowdown), np.nan)[slowdown.ranks.nic].round(2).tolist()


def shares(name: str, amount: float, change: Callable[[Rows], Rows] = lambda rows: rows) -> list[float]:
    """Of the NIC of each rank of a job which this befalls; `change`: what the agents told of the ports."""
    window = slow(name, RING, 1, amount)
    return shares_of(replace(window, tables={**window.tables, "nic": change(window.rows("nic").copy())}))


def test_who_carries_for_others_is_told_by_the_ports_and_a_limited_nic_carries_for_nobody() -> None:
    taken = shares("background_traffic", 0.65)
    assert [at for at, share in enumerate(taken) if share > 0.2] == list(
        make_fault("background_traffic", RING, 1, None, 1).ranks
    )
    assert max(shares("nic_limited", 0.3)) < 0.1


@pytest.mark.parametrize("lacks", ["tx_bytes", "rx_bytes"])
def test_traffic_one_way_is_seen_by_the_counter_of_that_way(lacks: str) -> None:
    def uncounted(rows: Rows) -> Rows:
        rows[lacks] = 2**64 - 1 if rows.dtype[lacks].kind == "u" else -1
        return rows

    assert [share > 0.2 for share in shares("background_traffic", 0.65, uncounted)].count(True) == 2


def test_ports_that_count_nothing_tell_nothing() -> None:
    def uncounted(rows: Rows) -> Rows:
        for name, _ in DIRECTIONS:
            rows[name] = 2**64 - 1 if rows.dtype[name].kind == "u" else -1
        return rows

    assert np.isnan(shares("background_traffic", 0.65, uncounted)).all()
    assert np.isnan(shares("background_traffic", 0.65, lambda rows: rows[:0])).all()


def test_the_last_iteration_which_has_no_end_is_none_of_before() -> None:
    slowdown = slowdown_of(slow("nic_limited", RING, 1, 0.4), ONSET_NS, DEFAULT)
    assert slowdown is not None
    assert slowdown.slow[-1] and not (slowdown.usual & slowdown.slow).any()
