"""Colour layers of the grid: one value per rank at one moment, and nobody has one of whom nothing is known."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from console.incidents.pictures import layers_lag
from console.incidents.pictures.layers import Values, make_layer, nothing_known, pack_layer
from console.incidents.pictures.layers_kept import stack_classes, stage_lateness
from console.incidents.pictures.layers_lag import op_lag
from console.incidents.pictures.layers_wire import against_usual, sent_by_nics, sent_by_ranks
from ingest.window import MEMBER, NODE, RANK, WINDOW_DTYPE, Window
from nccl_instrument.tables import NO_OP, SEND, TRAFFIC_FINISHED, TRAFFIC_INCOMPLETE
from rca.frontier.lateness import lateness_ms, pack_lateness, unpack_lateness
from tests.windows import make_window

SECOND = 1_000_000_000
AT = 1_795_000_000 * SECOND


def told(ticks: dict[int, list[tuple[float, int]]], comm_of: dict[int, int] | None = None) -> Window:
    """A window in which each rank, on a node of its own, told (seconds after AT, ops entered)."""
    n = 4
    nodes, ranks = np.zeros(n, NODE), np.zeros(n, RANK)
    nodes["name"], nodes["watermark_ns"] = [f"node-{k}" for k in range(n)], AT
    ranks["rank"] = ranks["node"] = np.arange(n)
    rows = np.zeros(sum(map(len, ticks.values())), WINDOW_DTYPE["progress"])
    flat = [(rank, at, count) for rank, told_ in ticks.items() for at, count in told_]
    for row, (rank, at, count) in zip(rows, flat, strict=True):
        row["rank"] = row["node"] = row["comm_rank"] = rank
        row["tick_ns"], row["n_enqueued"], row["comm_id"] = AT + int(at * SECOND), count, (comm_of or {}).get(rank, 7)
    members = np.zeros(1, MEMBER)
    members["comm_id"], members["name"] = 7, "dp0"
    return Window("job", 0, AT - 4 * SECOND, AT + 2 * SECOND, AT, n, nodes, ranks, members, {"progress": rows})


def lag_of(window: Window, ahead: dict[str, int] | None = None) -> Values:
    return op_lag(window, AT, 4, ahead or {})


def note(found: Values, rank: int) -> str:
    return found.texts[int(found.note[rank])]


def test_a_rank_that_stopped_is_as_many_ops_behind_as_the_furthest_entered_since() -> None:
    found = lag_of(told({0: [(-1, 90), (0, 100)], 1: [(-1, 90), (0, 100)], 2: [(-1, 60), (0, 60)], 3: [(0, 100)]}))
    assert found.value.tolist() == [0, 0, 40, 0]
    assert note(found, 2) == "in dp0" and note(found, 0) == ""


def test_ranks_of_a_fast_job_whose_nodes_tell_at_other_times_are_not_behind() -> None:
    """A thousand ops a second, told up to 0.9 s apart: rows as they are would say 900 ops."""
    ticks = {
        rank: [(k - 0.3 * rank, int(10_000 + 1000 * (k - 0.3 * rank))) for k in (-2, -1, 0, 1)] for rank in range(4)
    }
    assert np.abs(lag_of(told(ticks)).value).max() <= 1


def test_clocks_that_are_known_to_be_ahead_are_put_back() -> None:
    def of(rank: int) -> list[tuple[float, int]]:
        ahead = 0.5 if rank == 1 else 0.0
        return [(k + ahead, 1000 * (k + 10)) for k in (-2, -1, 0)]

    window = told({rank: of(rank) for rank in range(4)})
    assert lag_of(window).value[1] > 100
    assert lag_of(window, {"node-1": SECOND // 2}).value.tolist() == [0, 0, 0, 0]


def test_the_moment_is_the_newest_that_every_node_which_is_heard_has_told() -> None:
    found = lag_of(told({0: [(-1, 9), (0, 10)], 1: [(-1.5, 8), (-0.5, 9)], 2: [(-0.8, 9)]}))
    assert found.at_ns == AT - int(0.8 * SECOND)


def test_a_node_that_is_not_heard_is_unknown_and_nobody_waits_for_it() -> None:
    found = lag_of(told({0: [(0, 10)], 1: [(0, 10)], 2: [(-3.5, 1)]}))
    assert found.at_ns == AT
    assert np.isnan(found.value[[2, 3]]).all() and found.value[:2].tolist() == [0, 0]
    assert "nothing came from it then" in note(found, 2)


def test_a_rank_without_a_mate_that_is_heard_is_not_on_time_but_unknown() -> None:
    found = lag_of(told({0: [(0, 10)], 1: [(0, 10)], 2: [(0, 3)]}, comm_of={2: 8}))
    assert np.isnan(found.value[2]) and "no other member" in note(found, 2)


def test_who_is_behind_nobody_says_of_which_communicator_no_other_was_heard() -> None:
    """Its group within the node goes on; of the other there is nobody to compare with."""
    window = told({0: [(0, 10)], 1: [(0, 10)], 2: [(0, 4)]})
    rows = window.rows("progress")
    across, alone = rows[rows["rank"] == 0].copy(), rows[rows["rank"] == 1].copy()
    across["comm_id"], alone["comm_id"] = 8, 9
    members = np.zeros(3, MEMBER)
    members["comm_id"], members["name"], members["n_ranks"] = [7, 8, 9], ["tp0", "dp0", "pp0"], [3, 2, 1]
    window = dataclasses.replace(window, members=members, tables={"progress": np.concatenate([rows, across, alone])})
    found = lag_of(window)
    assert found.value[:3].tolist() == [0, 0, 6]
    assert [note(found, rank) for rank in range(3)] == ["but in dp0 nobody else was heard", "", "in tp0"]


def test_a_handful_of_nodes_is_looked_at_at_a_time_and_what_is_too_much_is_left_undone_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    window = told({rank: [(second, 10 * second + 30 + rank) for second in (-2, -1, 0)] for rank in range(4)})
    at_once = lag_of(window)
    monkeypatch.setattr(layers_lag, "NODES_AT_ONCE", 3)
    assert lag_of(window).value.tolist() == at_once.value.tolist() == [3, 2, 1, 0]
    monkeypatch.setattr(layers_lag, "ROWS_MAX", 11)
    assert "more than 11 counts" in lag_of(window).nothing
    monkeypatch.setattr(layers_lag, "ROWS_MAX", 12)
    assert lag_of(window).nothing == ""


def test_of_several_communicators_the_worst_counts() -> None:
    window = told({0: [(0, 10)], 1: [(0, 7)], 2: [(0, 50)], 3: [(0, 50)]}, comm_of={2: 8, 3: 8})
    rows = window.rows("progress")
    more = rows[rows["rank"] == 1].copy()
    more["comm_id"], more["n_enqueued"] = 8, 20
    found = lag_of(dataclasses.replace(window, tables={"progress": np.concatenate([rows, more])}))
    assert found.value.tolist() == [0, 30, 0, 0]
    assert note(found, 1) == f"in {8:016x}"


def test_without_progress_nobody_has_a_lag_and_it_says_why() -> None:
    found = lag_of(told({}))
    assert np.isnan(found.value).all() and "no progress" in found.nothing and found.at_ns == 0


def test_in_a_healthy_job_of_the_simulator_nobody_is_far_behind_and_in_a_hang_the_culprit_is() -> None:
    healthy, hung = make_window(), make_window(stuck_before=5)
    lags = [op_lag(window, window.end_ns - 1, 8, {}).value for window in (healthy, hung)]
    assert np.nanmax(lags[0]) <= 2
    assert np.nanmax(lags[1]) >= 1 and lags[1][5] == np.nanmax(lags[1])


# ---- bandwidth ----


def measured(rows: list[dict[str, int]], seconds: int = 10) -> Window:
    base = told({})
    traffic = np.zeros(len(rows), WINDOW_DTYPE["traffic"])
    for row, given in zip(traffic, rows, strict=True):
        row["direction"], row["flags"] = SEND, TRAFFIC_FINISHED
        for name, value in given.items():
            row[name] = value
        row["node"] = row["rank"]
    return dataclasses.replace(base, start_ns=AT - seconds * SECOND, end_ns=AT, tables={"traffic": traffic})


def test_a_ranks_bandwidth_is_what_it_sent_over_the_time() -> None:
    found = sent_by_ranks(
        measured([{"rank": 1, "op": 1, "n_bytes": 5_000}, {"rank": 1, "op": 2, "n_bytes": 15_000}]), 4
    )
    assert found.value[1] == 2000
    assert np.isnan(found.value[[0, 2, 3]]).all() and "measured no transfers" in note(found, 0)


def test_an_op_that_is_told_again_counts_once_and_bytes_of_no_op_all() -> None:
    again = [
        {"rank": 1, "op": 1, "n_bytes": 4_000, "end_ns": AT - 2, "flags": 0},
        {"rank": 1, "op": 1, "n_bytes": 10_000, "end_ns": AT - 1},
    ]
    unowned = [{"rank": 1, "op": NO_OP, "n_bytes": 5_000}, {"rank": 1, "op": NO_OP, "n_bytes": 5_000}]
    assert sent_by_ranks(measured([*again, *unowned]), 4).value[1] == 2000


def test_a_rank_of_a_measuring_node_that_sent_nothing_has_none() -> None:
    rows = [{"rank": 1, "op": 1, "n_bytes": 10_000}, {"rank": 2, "op": 1, "n_bytes": 10_000, "direction": 1 - SEND}]
    assert sent_by_ranks(measured(rows), 4).value[2] == 0


def test_what_was_lost_is_said() -> None:
    rows = [{"rank": 1, "op": 1, "n_bytes": 10_000, "flags": TRAFFIC_FINISHED | TRAFFIC_INCOMPLETE}]
    assert "100% of the transfers something was lost" in sent_by_ranks(measured(rows), 4).says


def nics(rates: dict[int, int], ticks: tuple[int, ...] = (-2, -1, 0)) -> Window:
    base = told({})
    ranks = base.ranks.copy()
    ranks["nic"] = "mlx5_0"
    rows = np.zeros(len(rates) * len(ticks), WINDOW_DTYPE["nic"])
    for row, (node, tick) in zip(rows, [(node, tick) for node in rates for tick in ticks], strict=True):
        row["node"], row["name"], row["tick_ns"] = node, b"mlx5_0", AT + tick * SECOND
        row["tx_bytes"] = 10**12 + rates[node] * (tick + 10)
    return dataclasses.replace(base, ranks=ranks, tables={"nic": rows})


def test_where_no_transfers_are_measured_the_nics_counters_tell() -> None:
    found = sent_by_nics(nics({0: 1_000_000, 1: 0}), 4, "nodes measured no transfers then")
    assert found.value[:2].tolist() == [1_000_000, 0] and np.isnan(found.value[2:]).all()
    assert "by its counters" in found.says and "not known" in note(found, 3)


def test_a_counter_that_began_anew_or_was_told_once_tells_no_rate() -> None:
    found = sent_by_nics(nics({0: 5, 1: -(10**9)}), 4, "why")
    assert np.isnan(found.value[1]) and "began anew" in note(found, 1)
    assert sent_by_nics(nics({0: 5}, ticks=(0,)), 4, "why").nothing.startswith("why, and of no rank")


def test_without_any_counter_it_says_that_nobody_measures() -> None:
    found = sent_by_nics(told({}), 4, "nodes measured no transfers then")
    assert found.nothing == "nodes measured no transfers then, and tell nothing of their NICs"


def test_in_a_hang_the_scale_is_that_of_what_ranks_sent_before() -> None:
    hung = sent_by_nics(nics({0: 42, 1: 0}), 2, "why")
    usual = sent_by_nics(nics({0: 5_200_000, 1: 5_200_000}), 2, "why")
    seen = against_usual(hung, usual)
    layer = make_layer("bandwidth", seen, None, is_settled=False)
    assert layer.full == 5_200_000 and layer.high == 42
    assert "at least 5.2 MB/s, what half of the ranks asked sent before the first symptom" in layer.says


def test_of_who_sent_next_to_nothing_before_or_of_whom_nothing_is_known_the_scale_is_its_own() -> None:
    hung = sent_by_nics(nics({0: 42, 1: 0}), 2, "why")
    assert against_usual(hung, sent_by_nics(nics({0: 900, 1: 900}), 2, "why")) == hung
    assert against_usual(hung, sent_by_nics(told({}), 2, "why")) == hung
    unknown = nothing_known(2, "nobody tells")
    assert against_usual(unknown, hung) is unknown


# ---- stacks ----


def group(ranks: list[int], said: str, is_wait: bool = False, kind: str = "trainer") -> dict[str, Any]:
    return {"kind": kind, "ranks": ranks, "count": len(ranks), "said": said, "is_wait": is_wait}


def test_those_who_stand_out_come_before_those_who_wait_and_the_many() -> None:
    stacks = {
        "groups": [group([0, 1, 2, 3, 4], "in a collective"), group([5], "in a barrier", is_wait=True), group([6], "loads data"),
                   group([0, 1], "a loader", kind="loader")],
        "silent": [{"rank": 7, "why": "its node has not answered"}],
    }  # fmt: skip
    found = stack_classes(stacks, AT, 9)
    assert [(one.said, one.n_ranks, one.is_most) for one in found.classes] == [
        ("loads data", 1, False), ("in a barrier", 1, False), ("in a collective", 5, True),
    ]  # fmt: skip
    assert found.value[[6, 5, 0]].tolist() == [0, 1, 2]
    assert np.isnan(found.value[[7, 8]]).all()
    assert (note(found, 7), note(found, 8)) == ("its node has not answered", "its stacks were not read")


def test_of_two_classes_of_one_size_neither_is_what_most_do() -> None:
    found = stack_classes({"groups": [group([0], "a"), group([1], "b")]}, AT, 2)
    assert not any(one.is_most for one in found.classes)


# ---- stages ----


def test_lateness_is_behind_the_median_rank_at_the_boundary_and_not_later() -> None:
    durations = np.full((5, 4, 3), 0.010)
    durations[:, 2, 0] = 0.030  # late from the first stage on
    durations[:, 1, 2] = 0.050  # late only after the boundary
    assert lateness_ms(durations, 1).round(6).tolist() == [0, 0, 20, 0]


def test_packed_lateness_is_the_same_again_and_small() -> None:
    ranks = tuple(range(3, 100_003))
    late = np.random.default_rng(1).normal(0, 2.0, len(ranks))
    packed = pack_lateness("forward", ranks, late)
    stage, again, ms = unpack_lateness(packed)
    assert (stage, tuple(again.tolist())) == ("forward", ranks)
    assert np.abs(ms - late).max() <= 0.051
    assert len(packed["tenths"]) + len(packed["ranks"]) < 2 * len(ranks)


@pytest.mark.parametrize("changes", [{"n": 5}, {"n": 10**9}, {"tenths": "AAAA"}])
def test_lateness_that_is_none_of_ours_is_refused(changes: dict[str, Any]) -> None:
    packed = pack_lateness("forward", (0, 1), np.zeros(2)) | changes
    with pytest.raises(ValueError, match="not a packed lateness"):
        unpack_lateness(packed)


def test_ranks_of_several_groups_each_have_that_of_their_own() -> None:
    def body(ranks: tuple[int, ...], late: list[float], end_ns: int = AT) -> dict[str, Any]:
        late_ms = np.array(late)
        return {"late": pack_lateness("forward", ranks, late_ms), "end_ns": end_ns, "report": {"step_s": 0.2}}

    old = AT - 540 * SECOND
    found = stage_lateness([("first", body((0, 1), [0.0, 4.0])), ("last", body((2,), [-1.0], old))], 4)
    assert (found.at_ns, found.until_ns) == (old, AT), "the oldest is said, not the newest alone"
    assert stage_lateness([("", body((0,), [0.0]))], 4).until_ns == 0
    assert found.value[:3].tolist() == [0, 4, -1] and np.isnan(found.value[3])
    assert (note(found, 1), round(found.full_min, 6)) == ("at the end of forward, first", 10.0)


def test_without_windows_it_says_so() -> None:
    assert "no window of stages" in stage_lateness([], 4).nothing
    assert "kept before" in stage_lateness([("", {"end_ns": 1})], 4).nothing


# ---- the answer ----


def test_the_scale_ends_where_something_is_worth_a_colour() -> None:
    found = Values(np.array([0.0, 1.0, np.nan, 0.0]), np.zeros(4, np.int64), ("",), AT, "said", full_min=4.0)
    layer = make_layer("op_lag", found, "2026-11-23T00:00:00Z", is_settled=False)
    assert (layer.low, layer.middle, layer.high, layer.full, layer.n_unknown) == (0, 0, 1, 4.0, 1)
    assert layer.value == [0, 1, None, 0] and layer.unit == "ops"


def test_of_nothing_known_there_is_no_scale_and_no_time() -> None:
    layer = make_layer("bandwidth", nothing_known(3, "nobody measures"), None, is_settled=True)
    assert (layer.low, layer.full, layer.at, layer.n_unknown, layer.nothing) == (None, None, None, 3, "nobody measures")


def test_a_hundred_thousand_ranks_are_a_small_answer() -> None:
    value = np.random.default_rng(1).uniform(1e9, 2e10, 100_000)
    found = Values(value, np.zeros(len(value), np.int64), ("",), AT, "said")
    assert len(pack_layer(make_layer("bandwidth", found, None, is_settled=False))) < 400_000
