"""Cutting a batch: limits keep the newest rows and count the rest, numbers go up by one, losses are told once."""

from __future__ import annotations

import numpy as np
import pytest

from nccl_instrument.agent.sending import batches
from nccl_instrument.agent.sending.batches import cut_batch, read_clocks
from nccl_instrument.agent.sending.jobs import COMM_PERIOD_NS, JobStream, name_problem
from nccl_instrument.agent.sending.losses import Losses
from nccl_instrument.tables import DTYPE, LOSSES, empty_rows
from nccl_instrument.wire import BATCH_BYTES_MAX, TraceBatch, decode_batch


def cut(tables: dict[str, np.ndarray], losses: Losses, stream: JobStream | None = None) -> TraceBatch:
    encoded = cut_batch(stream or JobStream("job"), "node", tables, losses, read_clocks())
    assert len(encoded) <= BATCH_BYTES_MAX
    return decode_batch(encoded)


def told(batch: TraceBatch) -> dict[str, int]:
    return {LOSSES[row["kind"]]: int(row["count"]) for row in batch.rows("loss")}


def test_numbers_go_up_by_one_and_losses_are_told_once() -> None:
    losses, stream = Losses(), JobStream("job")
    losses.add("job", "torn_rows", 2, pid=9)
    losses.add("job", "torn_rows", 3, pid=9)
    losses.add("other", "late_sweeps")
    first, second = cut({}, losses, stream), cut({}, losses, stream)
    assert (first.number, second.number, first.boot_id) == (0, 1, second.boot_id)
    assert first.rows("loss").tolist() == [(LOSSES.index("torn_rows"), 9, 5)]
    assert told(second) == {}


def test_rows_over_the_limit_are_the_oldest_and_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(batches.ROWS_MAX, "flow", 10)
    rows = empty_rows("flow", 25)
    rows["tick_ns"] = np.tile(np.arange(5), 5)  # flow by flow, as they are sent
    batch = cut({"flow": rows}, Losses())
    assert sorted(batch.rows("flow")["tick_ns"]) == [3] * 5 + [4] * 5
    assert told(batch) == {"rows_over_limit": 15}


def test_a_batch_that_does_not_compress_is_cut_down_until_it_fits_and_keeps_its_other_losses() -> None:
    noise = np.random.default_rng(1).integers(0, 256, 40_000 * DTYPE["op"].itemsize, np.uint8)
    losses = Losses()
    losses.add("job", "torn_rows", 4)
    batch = cut({"op": noise.view(DTYPE["op"])}, losses)
    assert told(batch) == {"rows_over_limit": 20_000, "torn_rows": 4}
    assert len(batch.rows("op")) == 20_000


def test_the_largest_batch_the_limits_allow_can_be_decoded() -> None:
    batch = cut({table: empty_rows(table, n_max) for table, n_max in batches.ROWS_MAX.items()}, Losses())
    assert told(batch) == {}


def test_communicators_are_owed_at_first_every_half_minute_and_when_asked_for() -> None:
    stream = JobStream("job")
    assert [stream.owes_comms(now) for now in (0, 1, COMM_PERIOD_NS, COMM_PERIOD_NS + 1)] == [True, False, True, False]
    stream.ask_for(("flow",))
    assert not stream.owes_comms(COMM_PERIOD_NS + 2)
    stream.ask_for(("comm",))
    assert stream.owes_comms(COMM_PERIOD_NS + 3)


@pytest.mark.parametrize("name", ["", "x" * 129, "é" * 65, "line\nbreak", "\x00"])
def test_names_the_server_would_refuse_are_found_on_the_node(name: str) -> None:
    assert name_problem(name, "job")


def test_the_clocks_are_read_together() -> None:
    first, second = read_clocks(), read_clocks()
    assert abs((second[0] - second[1]) - (first[0] - first[1])) < 10**7
