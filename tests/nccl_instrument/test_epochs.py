"""Epochs as a file: what is written is read, and no bytes do more than be refused with a reason."""

from __future__ import annotations

import contextlib
import io
import json
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nccl_instrument.epochs import CELL, FLOW, ITERATION, BadEpochs, Epochs, read_epochs, write_epochs

US, SECOND = 1_000, 10**9


def made() -> Epochs:
    iterations = np.array(
        [(7, 5 * SECOND, 6 * SECOND, 32 * US, 2, True), (9, 7 * SECOND, 8 * SECOND, 64 * US, 2, False)], ITERATION
    )
    flows = np.zeros(2, FLOW)
    flows["iteration"], flows["comm_id"], flows["peer"] = [0, 1], 0xABC, [1, 3]
    cells = np.array([(0, 156_250, 4096), (0, 156_251, 100), (1, 109_375, 5)], CELL)
    return Epochs(3, 4242, "mlx5_0", "plugin", 1_790_000_000 * SECOND, 10 * SECOND, iterations, flows, cells)


def test_what_is_written_is_read_and_the_same() -> None:
    epochs = made()
    back = read_epochs(write_epochs(epochs))
    for name in ("iterations", "flows", "cells"):
        assert (getattr(back, name) == getattr(epochs, name)).all()
    assert (back.rank, back.pid, back.nic, back.source) == (3, 4242, "mlx5_0", "plugin")


def test_an_epoch_begins_by_its_own_length_on_the_wall_clock() -> None:
    wall = 1_790_000_000 * SECOND - 10 * SECOND
    assert made().starts_ns().tolist() == [wall + 5 * SECOND, wall + 5 * SECOND + 32 * US, wall + 7 * SECOND]


def broken(**changes: object) -> bytes:
    return write_epochs(replace(made(), **changes))  # type: ignore[arg-type]


def with_flow(**columns: int) -> np.ndarray:
    flows = made().flows.copy()
    for name, value in columns.items():
        flows[name] = value
    return flows


def test_what_leads_nowhere_is_refused() -> None:
    cells = made().cells.copy()
    cells["flow"][0] = 2
    for raw, why in (
        (broken(flows=with_flow(iteration=5)), "iteration that is not there"),
        (broken(cells=cells), "flow that is not there"),
        (broken(cells=np.zeros(2, np.dtype([("flow", "<u4")]))), "other columns"),
        (broken(wall_ns=2**62), "number that cannot be"),
        (b"", "not a file of epochs"),
        (bytes(20 * 2**20), "too large"),
    ):
        with pytest.raises(BadEpochs, match=why):
            read_epochs(raw)


def test_a_pickle_or_a_bomb_is_not_opened() -> None:
    objects = io.BytesIO()
    np.savez(
        objects, iterations=made().iterations, flows=made().flows, cells=made().cells, facts=np.array([{}], object)
    )
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("iterations.npy", bytes(10**8))
    for raw in (objects.getvalue(), packed.getvalue()):
        with pytest.raises(BadEpochs):
            read_epochs(raw)


def test_another_format_is_refused_by_its_number() -> None:
    raw = write_epochs(made())
    facts = json.dumps({"format": 1, "rank": 3}).encode()[:13]
    assert facts in raw
    with pytest.raises(BadEpochs):
        read_epochs(raw.replace(facts, facts.replace(b"1", b"2")))


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 255), st.integers(0, 10**6))
def test_any_damage_gives_epochs_or_a_reason(at: int, byte: int, cut: int) -> None:
    raw = bytearray(write_epochs(made()))
    raw[at % len(raw)] = byte
    with contextlib.suppress(BadEpochs):
        read_epochs(bytes(raw[: len(raw) - cut % 40]))
