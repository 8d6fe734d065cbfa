"""How many epochs a second one core cuts into ops (Pulse Algorithm 1), as a node does: in polls of a second.

`python -m tests.bench.segmentation`. The epochs are those of a simulated GPT-2 step (64 GPUs, transfers of 1 MiB), repeated until
they make a minute of one flow's life. A row is an epoch with bytes, the pair (time, rate) of the algorithm. Beside it: the
whole minute as one array, and all channels to a peer with their rows of `traffic` (PeerStream), which is what an agent does.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from nccl_instrument.flows.association import PeerStream
from nccl_instrument.flows.segmentation import Segmenter, segment

RUNS, SECONDS, EPOCH_NS = 5, 60, 32_000
OP_EPOCHS, PAUSE_EPOCHS = 400, 1_600  # an op of 13 ms every 64 ms
OP_BYTES = 400 * 2**20
POLL_NS = 1_000_000_000
Ints = npt.NDArray[np.int64]


def main() -> None:
    epochs, n_bytes = flow(np.random.default_rng(1))
    n_ops = int(n_bytes.sum() // OP_BYTES)
    report = {
        "bench": "segmentation", "cores": os.cpu_count() or 1,
        "rows_per_s": _rate(len(epochs), lambda: _polled(epochs, n_bytes, n_ops)),
        "rows_per_s_at_once": _rate(len(epochs), lambda: _at_once(epochs, n_bytes, n_ops)),
        "rows_per_s_two_channels": _rate(2 * len(epochs), lambda: _streamed(epochs, n_bytes, n_ops)),
        "rows": len(epochs), "ops": n_ops, "load": round(os.getloadavg()[0], 1),
    }  # fmt: skip
    for key, value in report.items():
        print(f"{key:>24}  {value}")
    print(json.dumps(report))


def flow(draw: np.random.Generator) -> tuple[Ints, Ints]:
    """Epochs with bytes of a minute, and their bytes: ops with random pauses of an epoch or two inside, and silence between."""
    n_ops = SECONDS * 10**9 // EPOCH_NS // (OP_EPOCHS + PAUSE_EPOCHS)
    epochs, n_bytes = [], []
    for op in range(n_ops):
        steps = 1 + (draw.random(OP_EPOCHS) < 0.2).astype(np.int64)
        epochs.append(op * (OP_EPOCHS + PAUSE_EPOCHS) + np.cumsum(steps))
        n_bytes.append(np.full(OP_EPOCHS, OP_BYTES // OP_EPOCHS, np.int64))
        n_bytes[-1][-1] += OP_BYTES - int(n_bytes[-1].sum())
    return np.concatenate(epochs), np.concatenate(n_bytes)


def _rate(n_rows: int, run: Callable[[], int]) -> int:
    """Rows a second, the median of RUNS."""
    took = []
    for number in range(RUNS):
        print(f"run {number + 1} of {RUNS}", flush=True)
        began = time.perf_counter()
        n_found = run()
        took.append(time.perf_counter() - began)
        assert n_found > 0
    return round(n_rows / statistics.median(took))


def _seconds(epochs: Ints) -> list[slice]:
    """What is new at each poll."""
    bounds = np.searchsorted(epochs, np.arange(SECONDS + 1) * POLL_NS // EPOCH_NS).tolist()
    return [slice(begin, end) for begin, end in pairwise(bounds)]


def _polled(epochs: Ints, n_bytes: Ints, n_ops: int) -> int:
    cut, found = Segmenter(EPOCH_NS), 0
    cut.expect([OP_BYTES] * n_ops)
    for second, new in enumerate(_seconds(epochs), 1):
        cut.feed(epochs[new], n_bytes[new])
        found += len(cut.poll(second * POLL_NS))
    assert found >= n_ops - 1, f"{found} of {n_ops} ops were found"
    return found


def _at_once(epochs: Ints, n_bytes: Ints, n_ops: int) -> int:
    found = segment(epochs, n_bytes, [OP_BYTES] * n_ops, epoch_ns=EPOCH_NS, now_ns=(SECONDS + 1) * POLL_NS)
    assert len(found) == n_ops, f"{len(found)} of {n_ops} ops were found"
    return len(found)


def _streamed(epochs: Ints, n_bytes: Ints, n_ops: int) -> int:
    stream, found = PeerStream(EPOCH_NS), 0
    stream.expect(np.arange(n_ops), np.full(n_ops, 2.0 * OP_BYTES), np.zeros(n_ops, bool))
    for second, new in enumerate(_seconds(epochs), 1):
        for channel in range(2):
            stream.feed(channel, epochs[new], n_bytes[new])
        found += len(stream.poll(second * POLL_NS))
    return found


if __name__ == "__main__":
    main()
