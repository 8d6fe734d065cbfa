"""Training steps as Megatron-LM launches them, for random models and layouts: the ops of a window, without running anything.

Wider than what the simulator plays: sequence and context parallelism, interleaved pipelines, overlapped and sharded gradients,
FSDP by layer, tied embeddings, the little groups that only add up losses and norms. Sizes follow from a drawn model (hidden size,
layers, sequence, tokens of a microbatch), whatever comes out larger; launches follow a clock of compute and transfers without
contention. Ranks are laid out tp, cp, dp, pp, fastest first.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt

from ingest.window import MEMBER, NODE, RANK, WINDOW_DTYPE, Window
from nccl_instrument.tables import FUNC_RECV, FUNC_SEND, FUNCS, OP_P2P
from rca.flows.parallelism import Parallelism

RANKS_MAX: Final = 512
ITERATIONS: Final = 3
OPS_MOST: Final = 700_000  # of a window: more takes long and says the same again
SECOND: Final = 10**9
FLOPS: Final = 4e14
NODE_BYTES_PER_S, NETWORK_BYTES_PER_S = 3e11, 4e10
NORM_BYTES: Final = 4
BUCKET_BYTES: Final = 160 * 2**20
Rows = npt.NDArray[np.void]
Call = tuple[str, str, int, int, int]
"""Kind of group, function, peer (place, -1 none), bytes as in the call, when (ns)."""

SERVES: Final = {
    "tp": Parallelism.TENSOR, "dp": Parallelism.DATA, "edp": Parallelism.DATA, "embedding": Parallelism.DATA,
    "pp": Parallelism.PIPELINE, "ep": Parallelism.EXPERT, "cp": Parallelism.UNKNOWN, "loss": Parallelism.NONE,
    "world": Parallelism.NONE,
}  # fmt: skip
"""What is true of a group. Context parallelism is none of Figure 5's kinds: to say so is right, and nothing else."""


@dataclass(frozen=True)
class Plan:
    """A model and how it is spread. reduce: "allreduce", "sharded" (distributed optimizer) or "fsdp" (by layer)."""

    tp: int
    cp: int
    dp: int
    pp: int
    ep: int
    virtual: int
    n_layers: int
    n_microbatches: int
    hidden: int
    tokens: int
    is_sequence: bool
    is_overlapped: bool
    is_tied: bool
    is_one_call: bool
    reduce: str

    @property
    def n_ranks(self) -> int:
        return self.tp * self.cp * self.dp * self.pp

    @property
    def activation(self) -> int:
        """Bytes of a microbatch's activations of one layer, bf16."""
        return 2 * self.tokens * self.hidden // self.cp

    @property
    def layer_weights(self) -> int:
        """Parameters of a layer that a rank holds."""
        return 12 * self.hidden * self.hidden // self.tp

    @property
    def groups(self) -> dict[str, npt.NDArray[np.int64]]:
        """Kind → (groups, members) ranks, those of two or more."""
        grid = np.arange(self.n_ranks).reshape(self.pp, self.dp, self.cp, self.tp)
        whole = grid.reshape(self.pp, self.dp * self.cp, self.tp)
        split = whole.reshape(self.pp, self.dp * self.cp // self.ep, self.ep, self.tp)
        found = {
            "tp": grid.reshape(-1, self.tp),
            "cp": grid.transpose(0, 1, 3, 2).reshape(-1, self.cp),
            "dp": whole.transpose(0, 2, 1).reshape(-1, self.dp * self.cp),
            "pp": grid.transpose(1, 2, 3, 0).reshape(-1, self.pp),
            "world": grid.reshape(1, -1),
        }
        if self.cp > 1:
            found["loss"] = grid.transpose(0, 2, 3, 1).reshape(-1, self.dp)
        if self.ep > 1:
            found["ep"] = split.transpose(0, 1, 3, 2).reshape(-1, self.ep)
            found["edp"] = split.transpose(0, 2, 3, 1).reshape(-1, self.dp * self.cp // self.ep)
        if self.is_tied:
            found["embedding"] = grid[[0, -1]].transpose(1, 2, 3, 0).reshape(-1, 2)
        return {kind: ranks for kind, ranks in found.items() if ranks.shape[1] > 1}


def draw_plan(chance: random.Random) -> Plan:
    """Any that Megatron would accept, of 4 to 512 ranks, with a model that a step of such a job may have."""
    while True:
        tp, cp = chance.choice((1, 2, 4, 8)), chance.choice((1, 1, 1, 1, 2, 4))
        pp, dp = chance.choice((1, 1, 2, 3, 4, 6, 8, 16)), chance.choice((1, 2, 3, 4, 6, 8, 12, 16, 32, 64))
        ep = chance.choice([one for one in (1, 1, 2, 3, 4, 8, 16) if (dp * cp) % one == 0])
        virtual = chance.choice((1, 1, 2)) if pp > 1 else 1
        reduce = chance.choice(("allreduce", "sharded", "sharded", "fsdp" if pp == 1 and ep == 1 else "sharded"))
        found = Plan(
            tp, cp, dp, pp, ep, virtual, virtual * chance.choice((1, 2, 3, 4, 6)), chance.choice((1, 2, 4, 8, 16)),
            chance.choice((1024, 2048, 4096, 6144, 8192, 12288)), chance.choice((2048, 4096, 8192, 32768)),
            tp > 1 and chance.random() < 0.6, chance.random() < 0.5, pp > 1 and chance.random() < 0.4,
            chance.random() < 0.2, reduce,
        )  # fmt: skip
        if 4 <= found.n_ranks <= RANKS_MAX and len(found.groups) > 1 and n_ops(found) <= OPS_MOST:
            return found


def n_ops(plan: Plan) -> int:
    """About how many ops a window of it has."""
    each = (10 if plan.is_sequence else 4) * (plan.tp > 1) + 8 * (plan.ep - 1) + 4 * (plan.cp - 1) + 4
    return ITERATIONS * plan.n_ranks * plan.n_microbatches * (plan.n_layers * each + 4)


@dataclass
class _Clock:
    """One stage's launches of one iteration. at: ns."""

    calls: list[Call] = field(default_factory=list)
    at: float = 0.0

    def call(self, kind: str, func: str, n_bytes: float, peer: int = -1) -> None:
        self.calls.append((kind, func, peer, max(int(n_bytes), 1), int(self.at)))
        self.at += 5_000

    def works(self, seconds: float) -> None:
        self.at += seconds * SECOND


class _Stage:
    """What a rank of a pipeline stage launches in an iteration. Places of groups are relative: cp, ep by `place`."""

    def __init__(self, plan: Plan, stage: int, places: dict[str, int], chance: random.Random) -> None:
        self.plan, self.stage, self.places, self.chance = plan, stage, places, chance
        self.clock = _Clock()
        self.layers = plan.n_layers // plan.virtual

    def step(self) -> list[Call]:
        plan = self.plan
        chunks, micro = plan.virtual, plan.n_microbatches
        if plan.is_overlapped and plan.reduce == "sharded" and "dp" in plan.groups:
            self._in_buckets("AllGather", 2.0)
        self.clock.works(self.stage * self._seconds(1))  # the stages before it fill
        for kind, chunk, n in self._order(chunks, micro):
            if kind == "F":
                self._forward(chunk)
            else:
                self._backward(chunk, is_last=n == micro - 1)
        self.clock.works((plan.pp - 1 - self.stage) * self._seconds(2) if plan.pp > 1 else 0.0)
        self._update()
        return self.clock.calls

    def _order(self, chunks: int, micro: int) -> Iterator[tuple[str, int, int]]:
        """1F1B; with virtual stages all forwards first, as its warm-up nearly is."""
        warm = min(self.plan.pp - self.stage - 1, micro)
        if chunks > 1:
            yield from (("F", chunk, n) for chunk in range(chunks) for n in range(micro))
            yield from (("B", chunk, n) for chunk in reversed(range(chunks)) for n in range(micro))
            return
        yield from (("F", 0, n) for n in range(warm))
        for n in range(micro - warm):
            yield "F", 0, warm + n
            yield "B", 0, n
        yield from (("B", 0, micro - warm + n) for n in range(warm))

    def _seconds(self, times: int) -> float:
        """Of one layer's compute."""
        return times * 2 * self.plan.layer_weights * self.plan.tokens / self.plan.cp / FLOPS

    def _edges(self, chunk: int) -> tuple[int, int]:
        """The stages before and after, -1 none: with virtual stages the last goes on with the first."""
        before = self.stage - 1 if self.stage else (self.plan.pp - 1 if chunk else -1)
        is_end = self.stage == self.plan.pp - 1
        after = self.stage + 1 if not is_end else (0 if chunk < self.plan.virtual - 1 else -1)
        return (before, after) if self.plan.pp > 1 else (-1, -1)

    def _pass(self, func: str, peer: int) -> None:
        if peer >= 0:
            size = self.plan.activation // (self.plan.tp if self.plan.is_sequence else 1)
            self.clock.call("pp", func, size, peer)

    def _forward(self, chunk: int) -> None:
        before, after = self._edges(chunk)
        self._pass("Recv", before)
        for _ in range(self.layers):
            self._layer(is_forward=True)
        self._pass("Send", after)

    def _backward(self, chunk: int, *, is_last: bool) -> None:
        before, after = self._edges(chunk)
        self._pass("Recv", after)
        n_buckets = self._n_buckets() if is_last and self.plan.is_overlapped else 0
        for layer in range(self.layers):
            self._layer(is_forward=False)
            if n_buckets and (layer + 1) * n_buckets // self.layers > layer * n_buckets // self.layers:
                self._reduce(n_buckets)
        self._pass("Send", before)

    def _layer(self, *, is_forward: bool) -> None:
        plan, has = self.plan, self.plan.groups
        if plan.reduce == "fsdp" and "dp" in has:
            self.clock.call("dp", "AllGather", 2 * plan.layer_weights / (plan.dp * plan.cp))
        for part in range(2):
            if "tp" in has and plan.is_sequence:
                self.clock.call("tp", "AllGather", plan.activation / plan.tp)
                self._compute(is_forward)
                self.clock.call("tp", "ReduceScatter", plan.activation / plan.tp)
                if not is_forward:
                    self.clock.call("tp", "AllGather", plan.activation / plan.tp)
            else:
                self._compute(is_forward)
                if "tp" in has:
                    self.clock.call("tp", "AllReduce", plan.activation)
            if part == 0 and "cp" in has:
                self._keys_and_values(is_forward)
            if part == 1 and "ep" in has:
                self._experts()
                self._compute(is_forward)
                self._experts()
        if plan.reduce == "fsdp" and "dp" in has and not is_forward:
            self.clock.call("dp", "ReduceScatter", 4 * plan.layer_weights / (plan.dp * plan.cp))

    def _compute(self, is_forward: bool) -> None:
        self.clock.works(self._seconds(1 if is_forward else 2) / 2)

    def _keys_and_values(self, is_forward: bool) -> None:
        """Round the ring, to the next always; compute in between."""
        plan, place = self.plan, self.places["cp"]
        size = plan.activation // plan.tp // 4 * (1 if is_forward else 2)
        for _ in range(plan.cp - 1):
            self.clock.call("cp", "Send", size, (place + 1) % plan.cp)
            self.clock.call("cp", "Recv", size, (place - 1) % plan.cp)
            self.clock.works(self._seconds(1) / plan.cp / 4)

    def _experts(self) -> None:
        plan, place = self.plan, self.places["ep"]
        each = 2 * plan.activation / plan.ep
        if plan.is_one_call:
            self.clock.call("ep", "AlltoAll", each)
            return
        for step in range(1, plan.ep):
            peer = (place + step) % plan.ep
            self.clock.call("ep", "Send", each * self.chance.uniform(0.6, 1.4), peer)
            self.clock.call("ep", "Recv", each * self.chance.uniform(0.6, 1.4), peer)
        self.clock.works(2 * plan.activation / NETWORK_BYTES_PER_S)

    def _n_buckets(self) -> int:
        return max(min(4 * self.plan.layer_weights * self.plan.n_layers // BUCKET_BYTES, self.layers), 1)

    def _reduce(self, n_buckets: int) -> None:
        """A bucket of gradients, fp32; those of experts among the ranks that hold the same ones."""
        plan = self.plan
        whole = 4 * plan.layer_weights * plan.n_layers / n_buckets
        for kind, share in (("dp", 1 / 3 if plan.ep > 1 else 1.0), ("edp", 2 / 3)):
            if kind in plan.groups and plan.reduce != "fsdp":
                n = plan.groups[kind].shape[1]
                is_all = plan.reduce == "allreduce"
                self.clock.call(kind, "AllReduce" if is_all else "ReduceScatter", whole * share / (1 if is_all else n))

    def _in_buckets(self, func: str, bytes_each: float) -> None:
        plan, n = self.plan, self._n_buckets()
        whole = bytes_each * plan.layer_weights * plan.n_layers / n
        for kind in ("dp", "edp"):
            if kind in plan.groups:
                for _ in range(n):
                    self.clock.call(kind, func, whole / plan.groups[kind].shape[1] / (1 if plan.ep == 1 else 2))

    def _update(self) -> None:
        plan, n_buckets = self.plan, self._n_buckets()
        if not plan.is_overlapped:
            for _ in range(n_buckets):
                self._reduce(n_buckets)
        self.clock.works(8 * plan.layer_weights * plan.n_layers / NETWORK_BYTES_PER_S)
        if "embedding" in plan.groups and self.stage in (0, plan.pp - 1):
            self.clock.call("embedding", "AllReduce", 4 * 50_304 * plan.hidden / plan.tp)
        if "loss" in plan.groups:
            self.clock.call("loss", "AllReduce", NORM_BYTES * plan.n_microbatches)
        self.clock.call("world", "AllReduce", NORM_BYTES)
        self.clock.works(12 * plan.layer_weights * plan.n_layers / 2e12)
        if not plan.is_overlapped and plan.reduce == "sharded":
            self._in_buckets("AllGather", 2.0)


def window_of(plan: Plan, seed: int) -> tuple[Window, dict[int, str]]:
    """Some iterations of every rank, and communicator → kind of group."""
    coordinates = np.array(np.unravel_index(np.arange(plan.n_ranks), (plan.pp, plan.dp, plan.cp, plan.tp))).T
    places, members, kinds = _places(plan)
    made = cache(_maker(plan, seed))
    found = []
    for rank in range(plan.n_ranks):
        stage = int(coordinates[rank][0])
        mine = {kind: place for kind, (_, place) in places[rank].items()}
        rows = made(stage, mine.get("cp", 0), mine.get("ep", 0))
        for kind, (comm_id, place) in places[rank].items():
            own = rows[rows["seq"] == list(plan.groups).index(kind)].copy()
            own["comm_id"], own["comm_rank"], own["rank"] = comm_id, place, rank
            found.append(own)
    table = np.concatenate(found)
    table["seq"] = 0
    ranks = np.zeros(plan.n_ranks, RANK)
    ranks["rank"] = np.arange(plan.n_ranks)
    for axis in ("tp", "pp", "dp", "ep"):
        ranks[axis] = -1
    end_ns = int(table["done_ns"].max()) + SECOND
    nodes = np.zeros(1, NODE)
    return Window(
        "job", 1, 0, end_ns, end_ns, plan.n_ranks, nodes, ranks, np.array(members, MEMBER), {"op": table}
    ), kinds


def _places(
    plan: Plan,
) -> tuple[list[dict[str, tuple[int, int]]], list[tuple[int, int, int, int, int, str]], dict[int, str]]:
    places: list[dict[str, tuple[int, int]]] = [{} for _ in range(plan.n_ranks)]
    members: list[tuple[int, int, int, int, int, str]] = []
    kinds: dict[int, str] = {}
    for kind, groups in plan.groups.items():
        for ranks in groups.tolist():
            comm_id = len(kinds) + 1
            kinds[comm_id] = kind
            for place, rank in enumerate(ranks):
                places[rank][kind] = (comm_id, place)
                members.append((comm_id, place, rank, len(ranks), 1, ""))
    return places, members, kinds


def _maker(plan: Plan, seed: int) -> Callable[[int, int, int], Rows]:
    kinds = list(plan.groups)

    def rows(stage: int, cp: int, ep: int) -> Rows:
        """Of one rank, all communicators; `seq` says of which kind."""
        calls = _Stage(plan, stage, {"cp": cp, "ep": ep}, random.Random(f"{seed}/{stage}/{cp}/{ep}")).step()
        calls = [call for call in calls if call[0] in kinds]
        found = np.zeros((ITERATIONS, len(calls)), WINDOW_DTYPE["op"])
        kind, func, peer, size, at = zip(*calls, strict=True)
        length_ns = _length_ns(plan, seed)
        nth = np.arange(ITERATIONS)[:, None]
        found["seq"] = [kinds.index(one) for one in kind]
        found["func"], found["peer"] = [FUNCS.index(one) for one in func], peer
        found["bytes"] = size
        found["count"] = found["bytes"] // 2
        found["flags"] = np.where(np.isin(found["func"], (FUNC_SEND, FUNC_RECV)), OP_P2P, 0)
        found["enqueued_ns"] = nth * length_ns + np.array(at)
        found["first_ready_ns"], found["done_ns"] = found["enqueued_ns"] + 1000, found["enqueued_ns"] + 100_000
        found["op"] = 1 + nth * len(calls) + np.arange(len(calls))
        return found.ravel()

    return rows


@cache
def _length_ns(plan: Plan, seed: int) -> int:
    """Of an iteration: the longest stage's."""
    ends = [
        _Stage(plan, stage, {"cp": 0, "ep": 0}, random.Random(f"{seed}/{stage}/0/0")).step()[-1][4] for stage in range(plan.pp)
    ]  # fmt: skip
    return int(1.05 * max(ends)) + 1_000_000
