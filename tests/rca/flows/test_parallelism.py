"""What a group serves, by what its ops look like."""

from __future__ import annotations

from dataclasses import replace

from rca.flows.calls import BeforeSends, Calls
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


def called(name: str, n: float, calls: Calls, ranks: frozenset[int] = frozenset(range(8))) -> GroupTraffic:
    return replace(collective(name, 500 * MIB * n, n), calls=calls, n_alike=n, ranks=ranks, longest_gap=0.2)


def test_gathers_that_are_given_back_are_activations_and_those_of_layer_after_layer_weights() -> None:
    """Sequence parallelism, whatever it moves; FSDP; a distributed optimizer."""
    found = parallelism_of(
        [
            called("sequence", 400, Calls(240, 160, 160, 2, 1)), called("fsdp", 96, Calls(64, 32, 32, 9, 1)),
            called("optimizer", 8, Calls(4, 4, 1, 4, 4)), called("norm", 1, Calls(0, 0, 0, 0, 0)),
        ]
    )  # fmt: skip
    assert found == {
        "sequence": Parallelism.TENSOR, "fsdp": Parallelism.DATA, "optimizer": Parallelism.DATA, "norm": Parallelism.DATA,
    }  # fmt: skip


def test_activations_come_before_every_send_of_a_stage_and_gradients_before_few() -> None:
    pipeline = replace(sends("p", 4, {(at, at + 1) for at in range(3)} | {(at + 1, at) for at in range(3)}))
    for share, which in ((1.0, Parallelism.TENSOR), (0.1, Parallelism.DATA)):
        calls = Calls(0, 0, 0, 0, 0, (BeforeSends("p", 8.0, share),))
        assert parallelism_of([pipeline, called("c", 32, calls)])["c"] is which


def test_reductions_on_the_same_ranks_are_told_by_which_come_more_often() -> None:
    none = Calls(0, 0, 0, 0, 0)
    ranks = frozenset({0, 8, 16, 24})
    found = parallelism_of([called("layers", 24, none), called("buckets", 6, none, ranks)])
    assert found == {"layers": Parallelism.TENSOR, "buckets": Parallelism.DATA}


def test_groups_laid_out_alike_serve_the_same() -> None:
    shown, silent = Calls(240, 160, 160, 2, 1), Calls(0, 0, 0, 0, 0)
    found = parallelism_of([called("a", 9, shown), called("b", 9, silent, frozenset(range(8, 16)))])
    assert set(found.values()) == {Parallelism.TENSOR}


def test_what_goes_round_one_way_or_between_two_in_few_sizes_is_not_told() -> None:
    """Context parallelism is none of Figure 5's kinds."""
    ring = {(at, (at + 1) % 4) for at in range(4)}
    assert parallelism_of([sends("c", 4, ring)]) == {"c": Parallelism.UNKNOWN}
    pair = replace(sends("e", 2, {(0, 1), (1, 0)}), whole_launches=1.0)
    assert parallelism_of([pair]) == {"e": Parallelism.EXPERT}
    assert parallelism_of([replace(pair, is_even=True)]) == {"e": Parallelism.UNKNOWN}


def test_a_large_op_that_is_little_beside_the_rest_is_no_loss() -> None:
    found = parallelism_of([collective("a", 90_000 * MIB, 960), collective("b", 36 * MIB, 1), collective("c", 64, 1)])
    assert (found["b"], found["c"]) == (Parallelism.DATA, Parallelism.NONE)
