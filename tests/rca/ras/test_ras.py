"""RAS reports name who is missing and who is behind; equal counts are no information."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rca.findings import Grade
from rca.ras.analysis import findings_of, global_ranks
from rca.ras.reading import BadRas, read_ras


def member(rank: int, **counts: int) -> dict[str, Any]:
    return {
        "rank": rank, "host": f"node-{rank // 8}", "pid": 100 + rank, "cuda_dev": rank % 8, "nvml_dev": rank % 8,
        "status": {"init_state": 0, "abort_flag": False}, "collective_counts": counts,
    }  # fmt: skip


def gone(rank: int, *, dead: bool) -> dict[str, Any]:
    return {**member(rank), "status": {"unresponsive": True, "considered_dead": dead}}


def report(*communicators: dict[str, Any]) -> bytes:
    return json.dumps({"nccl_version": "2.28.7", "communicators_count": 1, "communicators": communicators}).encode()


def comm(
    ranks: list[dict[str, Any]], missing: list[dict[str, Any]] | None = None, name: str = "ab12"
) -> dict[str, Any]:
    return {"hash": name, "size": len(ranks) + len(missing or []), "ranks": ranks, "missing_ranks": missing or []}


TEXT = """NCCL version 2.26.2 compiled with CUDA 12.6

Job summary
===========

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    0         1         4         8        32        32   RUNNING  MISMATCH

Warnings
========

#0-0 (fa93daea854b060b) MISMATCH
  Communicator ranks have different AllGather operation counts
  30 ranks have launched up to operation {many}
  2 ranks have launched up to operation {few}
  Rank 12 -- GPU 4 managed by process 323032 on node 10.137.190.124
  Rank 13 -- GPU 5 managed by process 323033 on node 10.137.190.124

#0-1 (0a93) INCOMPLETE
  Missing communicator data from 1 rank
  Rank 7 -- GPU 7 managed by process 60004 on node 10.4.109.13
"""


def test_the_few_that_launched_less_are_behind() -> None:
    ranks = [member(rank, AllReduce=41 if rank == 5 else 42, Broadcast=7) for rank in range(8)]
    best = findings_of(read_ras(report(comm(ranks))))[0]
    assert (best.culprits, best.grade) == ((5,), Grade.MODERATE)
    assert "launched fewer AllReduce" in best.sentence


def test_equal_counts_and_the_few_that_are_ahead_name_nobody() -> None:
    assert findings_of(read_ras(report(comm([member(rank, AllReduce=42) for rank in range(8)])))) == ()
    ahead = [member(rank, AllReduce=43 if rank == 5 else 42) for rank in range(8)]
    assert findings_of(read_ras(report(comm(ahead)))) == ()
    assert findings_of(read_ras(report())) == ()


def test_missing_members_are_named_and_the_dead_more_surely() -> None:
    ranks = [member(rank, AllReduce=3) for rank in range(7)]
    dead = findings_of(read_ras(report(comm(ranks, [gone(7, dead=True)]))))[0]
    unresponsive = findings_of(read_ras(report(comm(ranks, [gone(7, dead=False)]))))[0]
    assert dead.culprits == unresponsive.culprits == (7,)
    assert (dead.grade, unresponsive.grade) == (Grade.MODERATE, Grade.WEAK)


def test_ranks_of_small_communicators_are_named_as_in_the_largest() -> None:
    world = comm([member(rank, AllReduce=9) for rank in range(16)])
    pair = comm(
        [{**member(12, AllReduce=4), "rank": 0}, *[{**member(r, AllReduce=5), "rank": r - 12} for r in (13, 14, 15)]],
        name="p",
    )
    read = read_ras(report(pair, world))
    assert global_ranks(read)["node-1", 112, 4] == 12
    assert findings_of(read)[0].culprits == (12,)


def test_the_comma_that_2_28_9_forgets_is_put_right() -> None:
    raw = report(comm([member(0)], [gone(1, dead=True)])).replace(
        b'"nvml_dev": 1, "status"', b'"nvml_dev": 1\n "status"'
    )
    with pytest.raises(ValueError, match="delimiter"):
        json.loads(raw)
    assert findings_of(read_ras(raw))[0].culprits == (1,)


def test_the_text_of_ncclras_says_the_same() -> None:
    behind = findings_of(read_ras(TEXT.format(many=641, few=640).encode()))
    assert [one.culprits for one in behind] == [(12, 13), (7,)]
    ahead = findings_of(read_ras(TEXT.format(many=640, few=641).encode()))
    assert [one.culprits for one in ahead] == [(7,)]


@pytest.mark.parametrize(
    "raw", [b"", b"{}", b"hello", b'{"communicators": 3}', b"{" * 9999, b'{"nccl_version": "2", "communicators": [']
)
def test_what_is_no_report_is_refused_in_a_sentence(raw: bytes) -> None:
    with pytest.raises(BadRas):
        read_ras(raw)


@given(st.integers(0, 400), st.text(max_size=3))
def test_a_damaged_report_is_read_or_refused(at: int, new: str) -> None:
    for whole in (
        TEXT.format(many=641, few=640),
        report(comm([member(0, AllReduce=3)], [gone(1, dead=True)])).decode(),
    ):
        try:
            findings_of(read_ras((whole[:at] + new + whole[at + len(new) :]).encode()))
        except BadRas as error:
            assert str(error)
