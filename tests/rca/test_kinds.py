"""Throughput and op interval per op kind: what is no slowdown first, then the paper's half and double."""

from __future__ import annotations

import dataclasses
import json
from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
import pytest

from ingest.window import WINDOW_DTYPE, Window
from nccl_instrument.tables import FUNCS, LOSSES, OP_HAS_FLOWS
from rca.findings import SymptomKind
from rca.settings import DEFAULT, SECOND_NS
from rca.triggers.kinds import BLOCK_NS_MAX, Halved, Kind, halved_kind, kinds_from_json, kinds_to_json, learn_kinds
from rca.triggers.look import is_halved, look
from rca.triggers.normal import ALL, Normal
from rca.triggers.pace import Pace
from tests.windows import MS, START, make_window

BASE = make_window(4, tp=1, pp=1, at_ms=50)
LOOK_S = 15
RANKS = np.array([0, 1])
ALLREDUCE = FUNCS.index("AllReduce")
USUAL = Normal(intervals={ALL: {100: 1000}})

Op = tuple[float, float, int]
"""(end in s, how long it took in s, bytes)."""


def window(ops: Sequence[Op], end_s: float, rank: int = 0) -> Window:
    """What a look sees at end_s of a rank's AllReduces in the job's one communicator."""
    end_ns = START + int(end_s * SECOND_NS)
    ops = ops[bisect_left(ops, end_s - LOOK_S, key=_end) : bisect_left(ops, end_s, key=_end)]
    rows = np.zeros(len(ops), WINDOW_DTYPE["op"])
    rows["comm_id"], rows["rank"], rows["comm_rank"], rows["node"] = BASE.members["comm_id"][0], rank, rank, rank
    rows["op"], rows["func"], rows["flags"] = np.arange(len(ops)), ALLREDUCE, OP_HAS_FLOWS
    rows["done_ns"] = [START + int(end * SECOND_NS) for end, _, _ in ops]
    rows["enqueued_ns"] = rows["first_ready_ns"] = [START + int((end - took) * SECOND_NS) for end, took, _ in ops]
    rows["bytes"] = rows["count"] = [n_bytes for _, _, n_bytes in ops]  # no two alike: nothing repeats
    start_ns = end_ns - LOOK_S * SECOND_NS
    return dataclasses.replace(BASE, start_ns=start_ns, end_ns=end_ns, now_ns=end_ns, tables={"op": rows})


def _end(op: Op) -> float:
    return op[0]


def steps(*spells: tuple[int, float, float], seed: int = 1, n_bytes: int = 1 << 20) -> list[Op]:
    """Ops without any pattern: n of each spell, `every` seconds apart on average, taking `took` of it on average."""
    draw, now, found = np.random.default_rng(seed), 0.0, []
    for n, every, took in spells:
        for _ in range(n):
            now += every * draw.uniform(0.4, 1.6)
            size = int(n_bytes * draw.uniform(0.5, 1.9))
            found.append((now, took * size / n_bytes, size))
    return found


def watched(
    ops: Sequence[Op], every_s: float = 2.0, until_s: float = 0.0
) -> tuple[dict[str, Kind], list[Halved | None]]:
    """The kinds after the last look, and what each look said."""
    kinds: dict[str, Kind] = {}
    said, looked, end_s = [], 0, every_s
    while end_s < (until_s or ops[-1][0]):
        seen = window(ops, end_s)
        kinds = learn_kinds(kinds, seen, RANKS, looked, DEFAULT)
        looked, end_s = seen.end_ns, end_s + every_s
        said.append(halved_kind(kinds, DEFAULT))
    return kinds, said


def test_a_job_without_any_pattern_that_keeps_its_pace_is_not_slow() -> None:
    for seed in range(3):
        assert not any(watched(steps((4000, 0.05, 0.02), seed=seed))[1])


def test_bursts_of_uneven_length_are_no_slowdown_and_their_blocks_grow_until_they_are_steady() -> None:
    draw, now, ops = np.random.default_rng(3), 0.0, []
    while now < 400:
        now += draw.uniform(2.0, 5.0)
        ops += [(now + i * 0.01, 0.005, 1 << 20) for i in range(int(draw.integers(10, 40)))]
    kinds, said = watched(ops)
    assert not any(said)
    (kind,) = kinds.values()
    assert kind.size > 16


@pytest.mark.parametrize("pause_s", [8, 30, 120])
def test_an_evaluation_or_a_checkpoint_is_one_long_block_and_nobodys_fault(pause_s: float) -> None:
    ops = steps((2400, 0.05, 0.02))
    resumed = [(end + ops[-1][0] + pause_s, took, size) for end, took, size in steps((600, 0.05, 0.02), seed=2)]
    assert not any(watched([*ops, *resumed])[1])


def test_a_warm_up_that_gets_faster_is_no_slowdown_and_no_normal() -> None:
    kinds, said = watched(steps((100, 0.2, 0.1), (3000, 0.05, 0.02)))
    assert not any(said)
    (kind,) = kinds.values()
    assert max(length for length, _ in kind.usual) < 1.6 * np.median([length for length, _ in kind.usual])


def test_bandwidth_at_80_percent_is_overlap_not_a_symptom() -> None:
    assert not any(watched(steps((2400, 0.05, 0.020), (1200, 0.05, 0.025)))[1])


def test_a_kind_too_rare_or_unsteady_for_blocks_of_a_minute_is_not_judged() -> None:
    draw = np.random.default_rng(4)
    ends = np.cumsum(draw.pareto(1.05, 400) + 0.2)
    kinds, said = watched([(float(end), 0.1, 1 << 20) for end in ends if end < 3000])
    assert not any(said)
    assert all(kind.size * SECOND_NS < 100 * BLOCK_NS_MAX for kind in kinds.values())


def test_a_doubled_interval_is_told_with_its_onset_after_three_blocks() -> None:
    _, said = watched(steps((2400, 0.05, 0.02), (1200, 0.11, 0.02)))
    first = next(at for at, one in enumerate(said) if one)
    halved = said[first]
    assert halved is not None and halved.what == "interval"
    assert 120 < 2 * (first + 1) < 135
    assert (halved.since_ns - START) / SECOND_NS == pytest.approx(120, abs=4)
    assert halved.now_s / halved.usual_s == pytest.approx(2.2, rel=0.2)


def test_a_halved_throughput_is_told_where_the_interval_stays() -> None:
    _, said = watched(steps((2400, 0.05, 0.01), (1200, 0.05, 0.024)))
    halved = said[-1]
    assert halved is not None and halved.what == "throughput"
    assert "MB/s while its ops run instead of" in halved.sentence


def test_what_is_slow_does_not_become_normal_and_what_recovers_is_not_slow() -> None:
    assert watched(steps((2400, 0.05, 0.02), (4000, 0.12, 0.02)))[1][-1] is not None
    assert watched(steps((2400, 0.05, 0.02), (400, 0.12, 0.02), (1200, 0.05, 0.02)))[1][-1] is None


def test_ops_that_were_lost_or_not_looked_at_are_not_taken_for_a_slowdown() -> None:
    ops = steps((4800, 0.05, 0.02))
    kinds, _ = watched(ops, until_s=120)
    looked = window(ops, 120).end_ns
    lost = [op for at, op in enumerate(ops) if op[0] < 120 or at % 3 == 0]
    for end_s in range(122, 150, 2):
        seen = window(lost, end_s)
        loss = np.zeros(1, WINDOW_DTYPE["loss"])
        loss["kind"], loss["count"], loss["node"] = LOSSES.index("ring_records"), 1, 0
        holed = dataclasses.replace(seen, tables={**seen.tables, "loss": loss})
        kinds, looked = learn_kinds(kinds, holed, RANKS, looked, DEFAULT), seen.end_ns
        assert halved_kind(kinds, DEFAULT) is None
    for end_s in range(190, 230, 2):
        kinds, looked = learn_kinds(kinds, window(ops, end_s), RANKS, looked, DEFAULT), window(ops, end_s).end_ns
        assert halved_kind(kinds, DEFAULT) is None


def test_kinds_survive_json_and_stay_small() -> None:
    kinds, _ = watched(steps((2400, 0.05, 0.02), (300, 0.2, 0.02)))
    text = json.dumps(kinds_to_json(kinds))
    assert kinds_from_json(json.loads(text)) == kinds
    assert len(text) < 4000
    with pytest.raises(ValueError, match="not kinds of ops"):
        kinds_from_json({"a": 5})


def test_of_a_job_that_does_not_repeat_itself_the_look_reports_it_at_once() -> None:
    (symptom,) = look(*slowed(USUAL)).symptoms
    assert symptom.kind is SymptomKind.STRAGGLER and is_halved(symptom, DEFAULT)
    assert "AllReduce on rank 0: 113 ms between two ops instead of 51.1 ms." in symptom.sentence


def test_while_iterations_are_as_long_as_ever_it_is_only_noted() -> None:
    seen_window, normal = slowed(USUAL)
    steps_ns = tuple((seen_window.end_ns - at * SECOND_NS, 500 * MS) for at in range(30, 0, -1))
    pace = Pace(seen_ns=steps_ns[-1][0], warm_up=20, usual_ns=(500 * MS,) * 20, recent=steps_ns)
    seen = look(seen_window, dataclasses.replace(normal, pace=pace))
    assert seen.symptoms == () and seen.noted.endswith("Iterations take 1.00 times as long as usual.")


def slowed(normal: Normal) -> tuple[Window, Normal]:
    """The last look at a job whose ops come half as often, and the normal it starts from."""
    ops = steps((2400, 0.05, 0.02), (300, 0.11, 0.02))
    kinds, _ = watched(ops)
    seen = window(ops, ops[-1][0])
    return seen, dataclasses.replace(normal, kinds=kinds, looked_ns=seen.end_ns - 2 * SECOND_NS)
