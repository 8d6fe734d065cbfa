"""A ring collective chunk by chunk, as the paper's Figure 2 draws it, and the windows of jobs that run nothing else.

        copy              wire                copy
    GPU ────▶ ready ═══════════════▶ arrived ────▶ taken, and ready for the next rank

Step s of a ring sends what step s - 1 brought. Every channel goes round by itself; its copies and its wire are served in
order. Everything is a recurrence over ranks and steps, so a fault changes one number (how long a copy or a wire takes) and
the rest follows. Times are milliseconds here and nanoseconds in the window.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ingest.window import MEMBER, NODE, RANK, WINDOW_DTYPE, Rows, Window
from nccl_instrument.tables import ALGOS, FUNCS, IB, OP_HAS_FLOWS, PROTOS, RECEIVE, SEND

Floats = npt.NDArray[np.float64]
Times = Callable[[int], Floats]
START_NS = 1_790_000_000 * 10**9
MS = 1_000_000
LATENCY_MS = 0.02
COMM = np.uint64(0xA11_6A7E)


@dataclass(frozen=True)
class Ring:
    """One collective: (R, C, S) per rank, channel and step, in ms since the job began. done: (R,)."""

    ready: Floats
    sent: Floats
    arrived: Floats
    taken: Floats
    started: Floats

    @property
    def done(self) -> Floats:
        found: Floats = np.maximum(self.sent, self.taken).max(axis=(1, 2))
        return found


def ring(started: Floats, copy: Floats, wire: Floats) -> Ring:
    """started: (R,) when each rank's kernel begins. copy, wire: (R, C, S) how long each takes at the rank that sends."""
    n, channels, steps = copy.shape
    ready, sent, arrived, taken = (np.zeros((n, channels, steps)) for _ in range(4))
    before = np.broadcast_to(started[:, None], (n, channels))
    for step in range(steps):
        had = np.maximum(started[:, None], arrived[:, :, step - 1]) if step else before
        free = ready[:, :, step - 1] if step else before
        ready[:, :, step] = np.maximum(had, free) + copy[:, :, step]
        on_wire = np.maximum(ready[:, :, step], sent[:, :, step - 1] if step else before)
        sent[:, :, step] = on_wire + wire[:, :, step]
        arrived[:, :, step] = np.roll(sent[:, :, step], 1, axis=0) + LATENCY_MS
    taken[:, :, :-1] = ready[:, :, 1:]  # taken from the network and made ready for the next in one go
    taken[:, :, -1] = np.maximum(arrived[:, :, -1], np.maximum(started[:, None], ready[:, :, -1])) + copy[:, :, -1]
    return Ring(ready, sent, arrived, taken, np.broadcast_to(started, (n,)).copy())


def ring_window(
    n_ranks: int, channels: int, funcs: tuple[str, ...], copy: Times, wire: Times, *, n_iterations: int = 60,
    compute_ms: float = 6.0, seed: int = 0,
) -> Window:  # fmt: skip
    """The window of a job whose iterations are these collectives of all ranks, each after some compute.

    copy(i), wire(i): (R, C, 1) or (R, C, S) ms of iteration i. One rank and one NIC per node.
    """
    noise, began, number, rows = np.random.default_rng(seed), np.zeros(n_ranks), 0, []
    for iteration in range(n_iterations):
        for func in funcs:
            number += 1
            shape = (n_ranks, channels, n_ranks - 1)
            times = (np.broadcast_to(of(iteration), shape) for of in (copy, wire))
            copies, wires = (one * noise.normal(1, 0.01, shape).clip(0.9) for one in times)
            started = began + compute_ms * noise.normal(1, 0.01, n_ranks).clip(0.9)
            made = ring(started, copies, wires)
            rows.append(_rows(made, began, number, func, channels))
            began = made.done
    return _window(n_ranks, np.concatenate(rows), float(began.max()))


def _rows(made: Ring, began: Floats, number: int, func: str, channels: int) -> Rows:
    n = len(began)
    rows, ranks = np.zeros(n, WINDOW_DTYPE["op"]), np.arange(n)
    rows["comm_id"], rows["comm_rank"], rows["rank"], rows["node"] = COMM, ranks, ranks, ranks
    rows["op"], rows["seq"], rows["func"] = number, number, FUNCS.index(func)
    rows["algo"], rows["proto"], rows["channels"] = ALGOS.index("RING"), PROTOS.index("SIMPLE"), channels
    rows["flags"], rows["n_flows"], rows["peer"] = OP_HAS_FLOWS, 2 * channels, -1
    rows["count"], rows["bytes"], rows["dtype"] = 2**20, 2**22, 8
    through = np.concatenate([made.sent[:, :, -1], made.arrived[:, :, -1]], axis=1)  # (R, 2C) sends, then receives
    slowest = through.argmax(axis=1)
    rows["slowest_channel"], rows["slowest_direction"] = slowest % channels, np.where(slowest < channels, SEND, RECEIVE)
    rows["slowest_peer"] = np.where(slowest < channels, ranks + 1, ranks - 1) % n
    times = {
        "enqueued_ns": began, "started_ns": made.started, "first_ready_ns": made.ready[:, :, 0].min(axis=1),
        "first_transfer_ns": np.minimum(made.ready[:, :, 0], made.arrived[:, :, 0]).min(axis=1),
        "fastest_done_ns": through.min(axis=1), "last_transfer_ns": through.max(axis=1), "done_ns": made.done,
    }  # fmt: skip
    for name, ms in times.items():
        rows[name] = START_NS + (ms * MS).astype(np.int64)
    for name, waited in _waits(made).items():
        rows[name] = (waited.sum(axis=(1, 2)) * MS).astype(np.int64)
    for name in ("gpu", "peer", "net"):
        rows[f"{name}_wait_ns"] += rows[f"receive_{name}_wait_ns"]
    return rows


def _waits(made: Ring) -> dict[str, Floats]:
    """(R, C, S) what every chunk waited for at each end, as the plugin counts it: since it passed the stage before, or its
    predecessor this one, whichever came later."""

    def waited(stage: Floats, before: Floats) -> Floats:
        first = np.broadcast_to(made.started[:, None, None], stage[:, :, :1].shape)
        latest = np.concatenate([np.where(first < stage[:, :, :1], first, stage[:, :, :1]), stage[:, :, :-1]], axis=2)
        found: Floats = stage - np.maximum(latest, before)
        return found

    never = np.full_like(made.ready, -np.inf)
    return {
        "gpu_wait_ns": waited(made.ready, never),
        "net_wait_ns": np.maximum(waited(made.sent, made.ready), 0),
        "receive_gpu_wait_ns": made.taken - np.maximum(made.arrived, _previous(made.taken)),
        "receive_peer_wait_ns": waited(made.arrived, never),
    }


def _previous(times: Floats) -> Floats:
    """The same of the chunk before; nothing before the first."""
    return np.concatenate([np.full_like(times[:, :, :1], -np.inf), times[:, :, :-1]], axis=2)


def _window(n: int, op: Rows, last_ms: float) -> Window:
    end_ns = START_NS + int((last_ms + 1) * MS)
    nodes, ranks, members = np.zeros(n, NODE), np.zeros(n, RANK), np.zeros(n, MEMBER)
    numbers = np.arange(n)
    nodes["name"], nodes["watermark_ns"], nodes["received_ns"] = [f"node{i}" for i in numbers], end_ns, end_ns
    nodes["first_ns"], nodes["n_ranks"] = START_NS, 1
    ranks["rank"], ranks["node"], ranks["pid"], ranks["transport"], ranks["nic"] = (
        numbers,
        numbers,
        1000 + numbers,
        IB,
        "nic0",
    )
    for name in ("tp", "pp", "dp", "ep"):
        ranks[name] = -1
    members["comm_id"], members["comm_rank"], members["rank"] = COMM, numbers, numbers
    members["n_ranks"], members["n_nodes"], members["name"] = n, n, "fsdp"
    return Window("job", 1, START_NS, end_ns, end_ns, n, nodes, ranks, members, {"op": op})
