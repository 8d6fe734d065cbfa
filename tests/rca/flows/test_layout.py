"""Which parallelism the communicators of a job serve: of random layouts, of jobs that say it, and of those that say another."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest

from ingest.window import MEMBER, NODE, RANK, WINDOW_DTYPE, Window
from nccl_instrument.simulate.layout import KINDS, Layout
from nccl_instrument.simulate.physics import CLUSTER, TESTBED, Physics
from nccl_instrument.simulate.schedule import KERNEL, Schedule, build_schedule
from nccl_instrument.sizes import LayoutError
from nccl_instrument.tables import FUNC_RECV, FUNC_SEND, FUNCS, OP_P2P
from rca.flows.layout import layout_of, parallelism_in
from rca.flows.parallelism import Parallelism
from tests.eval import megatron
from tests.eval.megatron import draw_plan

LAYOUTS = 100
SMALL_OPS = 15_000
RANKS_MAX = 512
ITERATIONS = 6
SECOND = 10**9
SERVES = {
    "tp": Parallelism.TENSOR, "dp": Parallelism.DATA, "edp": Parallelism.DATA, "pp": Parallelism.PIPELINE,
    "ep": Parallelism.EXPERT, "world": Parallelism.NONE,
}  # fmt: skip


def random_job(chance: random.Random) -> tuple[Layout, Physics]:
    """A layout that can be built, of 4 to 512 ranks, with sizes as models have them."""
    while True:
        tp, pp, dp = (chance.choice(sizes) for sizes in ([1, 2, 4, 8], [1, 2, 3, 4, 8], [1, 2, 4, 6, 8, 16]))
        ep = chance.choice([one for one in (1, 2, 3, 4, 8) if dp % one == 0])
        try:
            layout = Layout(tp=tp, pp=pp, dp=dp, ep=ep, ranks_per_node=min(8, tp * pp * dp))
        except LayoutError:
            continue
        if 4 <= layout.n_ranks <= RANKS_MAX:
            return layout, _physics(chance, layout)


def _physics(chance: random.Random, layout: Layout) -> Physics:
    layers, micro = chance.choice([1, 2, 4]), max(chance.choice([2, 4, 8]), layout.pp)
    tp_kib = chance.choice([8, 16, 64]) * 1024
    return replace(
        CLUSTER, n_layers=layers, n_microbatches=micro, n_buckets=chance.choice([1, 2, 4]), tp_kib=tp_kib,
        pp_kib=tp_kib // chance.choice([1, 2]), ep_kib=chance.choice([1, 4]) * tp_kib,
        dp_kib=chance.choice([256, 1024, 4096]) * 1024, schedule=chance.choice(["gpipe", "1f1b"]),
        dp_reduce=chance.choice(["sharded", "ring", "tree"]),
    )  # fmt: skip


def window_of(layout: Layout, physics: Physics, *, names: bool = False, declared: bool = False) -> Window:
    """The ops of some iterations of every rank, as the schedule enqueues them: nothing has run, times are those of launches."""
    schedule, comm_ids = build_schedule(layout, physics), layout.comm_ids("job", 1)
    first, found, members = 0, [], []
    for kind, groups in layout.groups.items():
        made = cache(partial(_ops, schedule, kind, groups.shape[1]))
        for number, ranks in enumerate(groups.tolist()):
            name = f"{kind}_{number}" if names else ""
            members += [
                (int(comm_ids[first + number]), place, rank, len(ranks), 1, name) for place, rank in enumerate(ranks)
            ]
            for place, rank in enumerate(ranks):
                rows = made(int(layout.places["pp"][rank]), place).copy()
                rows["comm_id"], rows["comm_rank"], rows["rank"] = comm_ids[first + number], place, rank
                found.append(rows)
        first += len(groups)
    places = np.zeros(layout.n_ranks, RANK)
    places["rank"] = np.arange(layout.n_ranks)
    for axis, of in layout.places.items():
        places[axis] = of if declared else -1
    end_ns, told = SECOND * (ITERATIONS + 1), {"op": np.concatenate(found)}
    return Window(
        "job", 1, 0, end_ns, end_ns, layout.n_ranks, np.zeros(1, NODE), places, np.array(members, MEMBER), told
    )


def _ops(schedule: Schedule, kind: str, n: int, stage: int, place: int) -> np.ndarray:
    """The ops of one rank in one communicator."""
    row, chance = schedule.classes[stage], random.Random(place)
    found: list[tuple[int, ...]] = []
    for at, task in enumerate(schedule.tasks[row["first_task"] : row["first_task"] + row["n_tasks"]]):
        n_ops = int(task["n_ops"]) if task["kind"] == KERNEL else 0
        specs = schedule.specs[task["first_op"] : task["first_op"] + n_ops]
        for spec in specs[np.array(KINDS)[specs["slot"]] == kind]:
            routed = chance.uniform(0.7, 1.3) / n if kind == "ep" else 1.0
            size = int(int(spec["bytes"]) * routed)
            found += [(FUNCS.index(func), peer, size, at) for func, peer in _calls(spec, kind, place, n)]
    func, peer, sizes, at_task = np.array(found, np.int64).reshape(-1, 4).T
    rows = np.zeros((ITERATIONS, len(func)), WINDOW_DTYPE["op"])
    rows["func"], rows["peer"], rows["bytes"], rows["count"] = func, peer, sizes, sizes // 4
    rows["flags"] = np.where(np.isin(func, (FUNC_SEND, FUNC_RECV)), OP_P2P, 0)
    nth = np.arange(ITERATIONS)[:, None]
    rows["enqueued_ns"] = nth * SECOND + at_task * (0.9 * SECOND / max(int(row["n_tasks"]), 1))
    rows["first_ready_ns"], rows["done_ns"] = rows["enqueued_ns"] + 1000, rows["enqueued_ns"] + 100_000
    rows["op"] = 1 + nth * len(func) + np.arange(len(func))
    return rows.ravel()


def _calls(spec: np.void, kind: str, place: int, n: int) -> list[tuple[str, int]]:
    if kind == "ep":
        return [(func, peer) for peer in range(n) if peer != place for func in ("Send", "Recv")]
    if kind == "pp":
        return [(FUNCS[spec["func"]], place + (1 if spec["neighbour"] else -1))]
    return [(FUNCS[spec["func"]], -1)]


@pytest.mark.parametrize("seed", range(0, LAYOUTS, 5))
def test_random_layouts_of_up_to_512_ranks_are_told(seed: int) -> None:
    for one in range(seed, seed + 5):
        layout, physics = random_job(random.Random(one))
        found = parallelism_in(window_of(layout, physics))
        names = dict(zip((int(comm) for comm in layout.comm_ids("job", 1)), layout.names, strict=True))
        wrong = {names[comm]: which for comm, which in found.items() if which is not SERVES[names[comm].split("_")[0]]}
        assert not wrong, f"{layout} {physics}"


@pytest.mark.parametrize("seed", range(8))
def test_small_jobs_as_megatron_launches_them_are_told(seed: int) -> None:
    """Sequence and context parallelism, tied embeddings, FSDP: what `make eval SUITE=pulse` draws up to 512 ranks."""
    chance = random.Random(f"small/{seed}")
    plan = next(plan for plan in iter(partial(draw_plan, chance), None) if megatron.n_ops(plan) <= SMALL_OPS)
    window, kinds = megatron.window_of(plan, seed)
    told = parallelism_in(window)
    assert {kind: told[one] for one, kind in kinds.items()} == {kind: megatron.SERVES[kind] for kind in plan.groups}


def test_names_and_coordinates_agree_and_where_they_do_not_it_is_said() -> None:
    layout = Layout(tp=2, pp=2, dp=2)
    for window in (window_of(layout, TESTBED, names=True), window_of(layout, TESTBED, declared=True)):
        groups = layout_of(window)
        assert len(groups) == len(layout.names)
        assert not [one.disagreement for one in groups if one.disagreement]
        assert any(one.evidence == (Parallelism.TENSOR,) for one in groups)
    window = window_of(layout, TESTBED, names=True)
    members = window.members.copy()
    members["name"] = np.char.replace(np.char.replace(members["name"], "tp", "xx"), "dp", "tp")
    said = [one.disagreement for one in layout_of(replace(window, members=members)) if one.name.startswith("tp")]
    assert said and all("DP" in one and "TP" in one for one in said)


def test_nothing_gives_nothing() -> None:
    window = window_of(Layout(tp=2, pp=1, dp=2), TESTBED)
    assert layout_of(replace(window, tables={})) == ()
