"""What a group serves, by what its ops look like."""

from __future__ import annotations

from rca.flows.parallelism import GroupTraffic, Parallelism, parallelism_of

MIB = 2**20


def collective(name: str, total: float, n: float, ranks: int = 8) -> GroupTraffic:
    return GroupTraffic(name, ranks, total, n, 0.0, frozenset())


def sends(name: str, n: int, pairs: set[tuple[int, int]]) -> GroupTraffic:
    return GroupTraffic(name, n, 0.0, 0.0, 100 * MIB, frozenset(pairs))


def test_a_layout_is_told_by_volume_count_and_pattern() -> None:
    chain = {(at, at + 1) for at in range(3)} | {(at + 1, at) for at in range(3)}
    mesh = {(a, b) for a in range(4) for b in range(4) if a != b}
    found = parallelism_of(
        [
            collective("gradients", 2000 * MIB, 2), collective("activations", 3000 * MIB, 192), collective("loss", 64, 1),
            sends("stages", 4, chain), sends("experts", 4, mesh),
        ]
    )  # fmt: skip
    assert found == {
        "gradients": Parallelism.DATA, "activations": Parallelism.TENSOR, "loss": Parallelism.NONE,
        "stages": Parallelism.PIPELINE, "experts": Parallelism.EXPERT,
    }  # fmt: skip


def test_groups_of_one_kind_are_told_by_how_often_they_talk() -> None:
    assert set(parallelism_of([collective("a", 900 * MIB, 2), collective("b", 900 * MIB, 2)]).values()) == {
        Parallelism.DATA
    }
    assert set(parallelism_of([collective("a", 900 * MIB, 96), collective("b", 900 * MIB, 96)]).values()) == {
        Parallelism.TENSOR
    }
    assert parallelism_of([]) == {}


def test_a_uneven_all_to_all_is_still_a_mesh_and_two_ranks_are_a_chain() -> None:
    mesh = {(a, b) for a in range(8) for b in range(8) if a != b} - {(0, 5), (3, 1), (6, 2)}
    assert parallelism_of([sends("e", 8, mesh)]) == {"e": Parallelism.EXPERT}
    assert parallelism_of([sends("p", 2, {(0, 1), (1, 0)})]) == {"p": Parallelism.PIPELINE}
