"""Sends and receives as torch records them for NCCL: one by one, and in batches whose ops stay `scheduled` for ever."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from rca.findings import FaultKind, Finding, Grade
from rca.flight_recorder.analysis import edges_of, findings_of, waiting_of
from rca.flight_recorder.sandbox import read_dumps
from rca.flight_recorder.view import recorder_view
from tests.rca.flight_recorder.test_reading import old_entry

GROUP = ("5", "pp")


class Ring:
    """What one rank records. is_over: whether the op, or the batch, has finished."""

    def __init__(self, rank: int, ranks: str = "[0, 1, 2, 3]", group: tuple[str, str] = GROUP) -> None:
        self.rank, self.ranks, self.group = rank, ranks, group
        self.entries: list[dict[str, Any]] = []
        self._n_p2p, self._n_collective = 0, 0

    def all_reduce(self, *, is_over: bool = True) -> Ring:
        self._n_collective += 1
        return self._enter("all_reduce", is_p2p=False, is_over=is_over)

    def one(self, *names: str, is_over: bool = True) -> Ring:
        for name in names:
            self._n_p2p += 1
            self._enter(name, is_p2p=True, is_over=is_over)
        return self

    def batch(self, *names: str, is_over: bool = True) -> Ring:
        self._n_p2p += 1
        for name in names:
            self._enter(name, is_p2p=True, is_over=False)
        return self._enter("coalesced", is_p2p=True, is_over=is_over)

    def gathers(self, n: int, *, is_over: bool) -> Ring:
        self._n_collective += 1
        for _ in range(n):
            self._enter("_all_gather_base", is_p2p=False, is_over=False)
        return self._enter("coalesced", is_p2p=False, is_over=is_over)

    def keeps(self, n: int) -> Ring:
        """The ring has room for the newest n only."""
        self.entries = self.entries[-n:]
        return self

    def dump(self) -> tuple[str, bytes]:
        config = {self.group[0]: {"name": self.group[0], "desc": self.group[1], "ranks": self.ranks}}
        top = {"version": "2.10", "pg_config": config, "entries": self.entries}
        return f"x_{self.rank}", pickle.dumps(top, protocol=2)

    def _enter(self, name: str, *, is_p2p: bool, is_over: bool) -> Ring:
        at = len(self.entries)
        entry = old_entry(
            record_id=at, process_group=self.group, collective_seq_id=self._n_collective, p2p_seq_id=self._n_p2p,
            profiling_name=f"nccl:{name}", is_p2p=is_p2p, state="completed" if is_over else "scheduled", retired=is_over,
            time_created_ns=1_000 + at, time_discovered_completed_ns=1_001 + at if is_over else None,
        )  # fmt: skip
        self.entries.append(entry)
        return self


def findings(*rings: Ring) -> tuple[Finding, ...]:
    return findings_of(waiting_of(read_dumps([ring.dump() for ring in rings])))


def exchanged(n: int) -> list[Ring]:
    """Three stages that have passed n micro-batches on, in batches."""
    rings = [Ring(rank, ranks="[0, 1, 2]") for rank in range(3)]
    for _ in range(n):
        rings[0].batch("send 0->1")
        rings[1].batch("recv 1<-0").batch("send 1->2")
        rings[2].batch("recv 2<-1")
    return rings


def test_batches_that_are_over_hold_nobody() -> None:
    assert findings(*exchanged(4)) == ()
    forgot = exchanged(4)
    forgot[2].keeps(1)
    assert findings(*forgot) == ()


def test_gathers_of_a_batch_that_is_over_hold_nobody() -> None:
    assert findings(*(Ring(rank).gathers(2, is_over=True) for rank in range(4))) == ()
    late = [Ring(rank).gathers(2, is_over=False) for rank in range(3)]
    assert findings(*late, Ring(3).all_reduce())[0].culprits == ()
    ahead = [Ring(rank).all_reduce().gathers(2, is_over=False) for rank in range(3)]
    assert findings(*ahead, Ring(3).all_reduce())[0].culprits == (3,)


def test_a_stage_that_sends_nothing_more_is_named_in_front_of_those_who_wait_in_batches() -> None:
    rings = exchanged(3)
    rings[1].batch("recv 1<-0", is_over=False)
    rings[2].batch("recv 2<-1", is_over=False)
    state = waiting_of(read_dumps([ring.dump() for ring in rings]))
    best = findings_of(state)[0]
    assert (best.culprits, best.grade) == ((0,), Grade.STRONG)
    assert edges_of(state, (0,), 9)[0] == (1, 2)


def test_who_waits_in_a_batch_that_another_end_holds_waits_for_that_one() -> None:
    rings = exchanged(2)
    rings[1].batch("recv 1<-0", "send 1->2", is_over=False)
    rings[2].batch("recv 2<-1", is_over=False)
    state = waiting_of(read_dumps([ring.dump() for ring in rings]))
    found = findings_of(state)
    assert [one.culprits for one in found] == [(0,)]
    victims, edges = edges_of(state, (0,), 9)
    assert victims == (1, 2)
    assert any("another op holds" in edge.why for edge in edges if edge.waiter == 2)


@pytest.mark.parametrize("is_batched", [True, False])
def test_an_end_that_has_finished_has_entered(is_batched: bool) -> None:
    sender, receiver = Ring(0, "[0, 1]"), Ring(1, "[0, 1]")
    for ring, name in ((sender, "send 0->1"), (receiver, "recv 1<-0")):
        enter = ring.batch if is_batched else ring.one
        enter(name)
        enter(name, is_over=ring is sender)
    best = findings(sender, receiver)[0]
    assert (best.culprits, best.kind) == ((), FaultKind.UNKNOWN)
    assert "inside the transfer" in best.sentence


@pytest.mark.parametrize("n_sent", [1, 2, 3])
def test_several_of_a_pair_are_counted(n_sent: int) -> None:
    """Three receives are in progress: whoever sent fewer is missing in the next."""
    sender = Ring(0, "[0, 1]").one(*["send 0->1"] * 5, is_over=True).one(*["send 0->1"] * n_sent, is_over=False)
    receiver = Ring(1, "[0, 1]").one(*["recv 1<-0"] * 5).one(*["recv 1<-0"] * 3, is_over=False)
    stops = waiting_of(read_dumps([sender.dump(), receiver.dump()])).stops
    assert sum(bool(stop.behind) for stop in stops) == 3 - n_sent


def test_a_ring_that_forgot_makes_nobody_sure() -> None:
    rings = [Ring(0, "[0, 1]").one(*["send 0->1"] * 9), Ring(1, "[0, 1]").one(*["recv 1<-0"] * 9)]
    rings[1].one("recv 1<-0", is_over=False)
    whole = findings(*rings)[0]
    assert (whole.culprits, whole.grade) == ((0,), Grade.STRONG)
    for ring in rings:
        ring.keeps(4)
    best = findings(*rings)[0]
    assert (best.culprits, best.grade) == ((0,), Grade.MODERATE)
    rings[0].entries[-1]["time_created_ns"] = 5_000  # after the receive: it may be the other end
    assert findings(*rings)[0].culprits == ()


def test_a_group_that_only_sends_and_receives_is_seen() -> None:
    rings = [Ring(0).one("send 0->1"), Ring(1).one("recv 1<-0", "recv 1<-0"), Ring(2).one("recv 2<-1")]
    rings[1].entries[-1] |= {"state": "started", "retired": False}
    rings[2].entries[-1] |= {"state": "started", "retired": False}
    state = waiting_of(read_dumps([ring.dump() for ring in (*rings, Ring(3))]))
    assert [group.members for group in state.groups] == [[0, 1, 2, 3]]
    assert findings_of(state)[0].culprits == (0,)
    assert "waits in p2p op 1" in recorder_view(state, 0)["groups"][0]["said"]
    over = waiting_of(read_dumps([Ring(0).one("send 0->1").dump(), Ring(1).one("recv 1<-0").dump()]))
    assert findings_of(over) == ()
    assert "-1" not in recorder_view(over, 0)["groups"][0]["said"]


def test_places_of_members_nobody_declares_blame_nobody() -> None:
    rings = [Ring(rank, "[]", ("0", "default_pg")).all_reduce() for rank in range(1, 6)]
    rings[2].one("recv 3<-2", is_over=False)
    best = findings(*rings)[0]
    assert (best.culprits, best.grade) == ((), Grade.WEAK)
    assert "no dump declares the members" in best.sentence
    declared = [Ring(rank, "[0, 1, 2, 3, 4, 5]").all_reduce() for rank in range(1, 6)]
    declared[2].one("recv 3<-2", is_over=False)
    assert findings(*declared)[0].culprits == (2,)


def test_an_order_of_members_that_the_recorder_itself_contradicts_is_not_used() -> None:
    rings = [Ring(rank, "[4, 5, 6]").all_reduce() for rank in (4, 5, 6)]
    rings[0].one("recv 1<-2", is_over=False)  # rank 4 says it is the second
    assert findings(*rings)[0].culprits == ()


def test_two_that_both_send_first_wait_for_each_other() -> None:
    rings = [Ring(0, "[0, 1]").one("send 0->1", is_over=False), Ring(1, "[0, 1]").one("send 1->0", is_over=False)]
    best = findings(*rings)[0]
    assert (best.kind, best.culprits, best.grade) == (FaultKind.DEADLOCK, (0, 1), Grade.STRONG)
    assert "do not meet" in best.sentence
