"""Ranks and coordinates read off the communicators, and the cases where they cannot be."""

from __future__ import annotations

import numpy as np
import pytest

from ingest.jobs.infer import MEMBERSHIP, axis_of, infer_coordinates, infer_ranks


def members(*groups: tuple[int, list[int], str]) -> np.ndarray:
    """(comm_id, processes in comm_rank order, name) each."""
    rows = [
        (id, i, process, len(processes), name) for id, processes, name in groups for i, process in enumerate(processes)
    ]
    return np.array(rows, MEMBERSHIP)


def grid(tp: int, dp: int, pp: int) -> list[tuple[int, list[int], str]]:
    """All groups of a Megatron layout, unnamed."""
    ranks = np.arange(tp * dp * pp).reshape(pp, dp, tp)
    found = [ranks[p, d, :] for p in range(pp) for d in range(dp)]
    found += [ranks[p, :, t] for p in range(pp) for t in range(tp)]
    found += [ranks[:, d, t] for d in range(dp) for t in range(tp)]
    return [(100 + i, group.tolist(), "") for i, group in enumerate(found)]


def test_the_largest_communicator_gives_the_ranks() -> None:
    world = (7, [2, 0, 3, 1], "")
    assert infer_ranks(members(world, (8, [0, 1], ""), (9, [2, 3], "")), 4).tolist() == [1, 3, 0, 2]


def test_two_largest_communicators_without_a_common_process_give_no_rank() -> None:
    assert infer_ranks(members((1, [0, 1], ""), (2, [2, 3], "")), 4).tolist() == [-1] * 4


def test_a_process_outside_the_largest_communicator_means_it_is_not_the_whole_job() -> None:
    assert infer_ranks(members((1, [0, 1, 2], ""), (2, [3, 0], "")), 4).tolist() == [-1] * 4


def test_members_still_missing_leave_their_ranks_open() -> None:
    partial = members((1, [0, 1, 2, 3], ""))[:2]
    partial["process"] = [0, 1]
    assert infer_ranks(partial, 2).tolist() == [0, 1]


def test_communicators_of_unknown_size_give_no_rank() -> None:
    unknown = members((1, [0, 1, 2, 3], ""))
    unknown["n_ranks"] = 0
    assert infer_ranks(unknown, 4).tolist() == [-1] * 4
    beside = np.concatenate([unknown, members((2, [0, 1], ""))])
    assert infer_ranks(beside, 4).tolist() == [-1] * 4


def test_no_communicator_gives_nothing() -> None:
    none = np.zeros(0, MEMBERSHIP)
    assert infer_ranks(none, 3).tolist() == [-1] * 3
    assert infer_coordinates(none, np.array([-1], np.int32))["tp"].tolist() == [-1]


@pytest.mark.parametrize(
    ("name", "axis"),
    [
        ("tp0", "tp"), ("TENSOR_MODEL_PARALLEL_GROUP", "tp"), ("mesh_dp", "dp"), ("pipe-3", "pp"), ("expert", "ep"),
        ("world", None), ("", None), ("tp_dp", None), ("default_pg", None), ("http", None),
    ],
)  # fmt: skip
def test_a_name_speaks_of_one_axis_or_of_none(name: str, axis: str | None) -> None:
    assert axis_of(name) == axis


def test_communicators_that_name_their_axis_give_coordinates() -> None:
    found = infer_coordinates(
        members((1, [0, 1], "tp0"), (2, [2, 3], "tp1"), (3, [0, 2], "dp0"), (4, [1, 3], "dp1")),
        np.arange(4, dtype=np.int32),
    )
    assert found["tp"].tolist() == [0, 1, 0, 1]
    assert found["dp"].tolist() == [0, 0, 1, 1]
    assert found["pp"].tolist() == [-1] * 4


def test_three_families_that_tile_the_job_are_tp_dp_and_pp() -> None:
    found = infer_coordinates(members(*grid(2, 2, 2), (1, list(range(8)), "")), np.arange(8, dtype=np.int32))
    assert found["tp"].tolist() == [0, 1] * 4
    assert found["dp"].tolist() == [0, 0, 1, 1] * 2
    assert found["pp"].tolist() == [0] * 4 + [1] * 4


def test_two_unnamed_families_are_ambiguous() -> None:
    groups = [g for g in grid(2, 4, 1) if len(g[1]) > 1]
    found = infer_coordinates(members(*groups), np.arange(8, dtype=np.int32))
    assert all((column == -1).all() for column in found.values())


def test_a_process_twice_in_one_axis_makes_the_axis_unknown() -> None:
    found = infer_coordinates(members((1, [0, 1], "pp0"), (2, [1, 2], "pp1")), np.arange(3, dtype=np.int32))
    assert found["pp"].tolist() == [-1] * 3
