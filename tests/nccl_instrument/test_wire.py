"""The trace batch as bytes: literal bytes both ways, every refusal with its reason, and round trips of any content."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from nccl_instrument import tables, wire

BOOT = bytes(range(16))


def make(**rows: np.ndarray) -> wire.TraceBatch:
    return wire.TraceBatch("job", "node-a", BOOT, 7, 1_000, 2_000, rows)


def resealed(data: bytes) -> bytes:
    """`data` with a checksum that fits, to reach the checks behind it."""
    return data[:16] + struct.pack("<I", zlib.crc32(data[20:])) + data[20:]


def test_an_empty_batch_is_these_bytes() -> None:
    body = zlib.compress(b"", 1)
    rest = BOOT + struct.pack("<QqqHH", 7, 1_000, 2_000, 3, 6) + b"jobnode-a" + body
    head = b"DGTB\x01\x00\x00\x00" + struct.pack("<III", len(body), 0, zlib.crc32(rest))
    assert wire.encode_batch(make()) == head + rest
    assert wire.decode_batch(head + rest) == make()


def test_loss_rows_are_these_byte_planes() -> None:
    rows = tables.empty_rows("loss", 2)
    rows["kind"], rows["pid"], rows["count"] = [1, 2], [5, -1], [3, 258]
    data = wire.encode_batch(make(loss=rows))
    planes = zlib.decompress(data[64 + 9 + 14 :])
    assert planes.hex() == "0102000005ff00ff00ff00ff03020001" + "0000" * 6
    assert (wire.decode_batch(data).rows("loss") == rows).all()


@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from(sorted(tables.TABLES)))
def test_any_rows_survive_the_round_trip(data: st.DataObject, table: str) -> None:
    raw = data.draw(npst.arrays(np.uint8, (data.draw(st.integers(0, 5)), tables.DTYPE[table].itemsize)))
    rows = np.ascontiguousarray(raw).view(tables.DTYPE[table]).reshape(-1)
    back = wire.decode_batch(wire.encode_batch(make(**{table: rows}))).rows(table)
    assert back.tobytes() == rows.tobytes()


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_give_a_batch_or_bad_batch(noise: bytes, with_head: bool) -> None:
    data = wire.encode_batch(make(loss=tables.empty_rows("loss", 3)))
    try:
        wire.decode_batch(resealed(data[:24] + noise) if with_head else noise)
    except wire.BadBatch as error:
        assert str(error)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda d: d[:10], "truncated"),
        (lambda d: b"X" + d[1:], "magic"),
        (lambda d: d[:4] + b"\x02" + d[5:], "version 2"),
        (lambda d: d[:-1] + bytes([d[-1] ^ 1]), "checksum"),
        (lambda d: resealed(d[:-3]), "truncated or padded"),
        (lambda d: resealed(d[:12] + struct.pack("<I", 10**9) + d[16:]), "too large"),
        (lambda d: resealed(d[:12] + struct.pack("<I", 5) + d[16:]), "disagree"),
        (lambda d: resealed(d[:64] + b"\xff" + d[65:]), "utf-8"),
        (lambda d: d + bytes(wire.BATCH_BYTES_MAX), "too large"),
    ],
)
def test_broken_structure_is_refused_with_its_reason(change: object, reason: str) -> None:
    whole = wire.encode_batch(make(loss=tables.empty_rows("loss", 1)))
    wire.decode_batch(whole)
    with pytest.raises(wire.BadBatch, match=reason):
        wire.decode_batch(change(whole))  # type: ignore[operator]


def test_a_body_that_inflates_beyond_its_promise_is_refused() -> None:
    data = wire.encode_batch(make(loss=tables.empty_rows("loss", 1)))
    at = 64 + 9 + 14
    bomb = zlib.compress(bytes(10_000_000), 9)
    with pytest.raises(wire.BadBatch, match="inflated size"):
        wire.decode_batch(resealed(data[:8] + struct.pack("<I", len(bomb)) + data[12:at] + bomb))


def test_columns_and_tables_of_a_newer_minor_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    newer = (*tables.TABLES["loss"], tables.Column("why", "<u4"))
    rows = np.zeros(2, tables.row_dtype(newer))
    rows["count"], rows["why"] = [4, 5], [9, 9]
    with monkeypatch.context() as patch:
        patch.setitem(tables.TABLES, "loss", newer)
        patch.setitem(tables.DTYPE, "loss", rows.dtype)
        patch.setitem(tables.TABLES, "novel", newer)
        patch.setitem(tables.DTYPE, "novel", rows.dtype)
        data = wire.encode_batch(make(novel=rows, loss=rows))
    decoded = wire.decode_batch(data)
    assert set(decoded.tables) == {"loss"}
    assert decoded.rows("loss")["count"].tolist() == [4, 5]


def test_columns_an_older_minor_did_not_have_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = tables.empty_rows("flow", 1)
    with monkeypatch.context() as patch:
        patch.setitem(tables.TABLES, "flow", tables.TABLES["flow"][:-1])
        patch.setitem(tables.DTYPE, "flow", tables.row_dtype(tables.TABLES["flow"]))
        data = wire.encode_batch(make(flow=rows[list(tables.DTYPE["flow"].names or ())]))
    assert wire.decode_batch(data).rows("flow")["nic"].tolist() == [-1]


def test_possible_rows_pass_and_impossible_ones_are_marked() -> None:
    flow = tables.empty_rows("flow", 4)
    flow["total_chunks"], flow["counters"] = 4, [4, 3, 2, 1]
    assert not wire.impossible_rows("flow", flow).any()
    flow["counters"][1] = [1, 2, 2, 1]
    flow["total_chunks"][2] = 3
    flow["direction"][3] = 9
    assert wire.impossible_rows("flow", flow).tolist() == [False, True, True, True]
    comm = tables.empty_rows("comm", 3)
    comm["n_ranks"], comm["comm_rank"] = [8, 8, 0], [7, 8, 8]
    assert wire.impossible_rows("comm", comm).tolist() == [False, True, False]
