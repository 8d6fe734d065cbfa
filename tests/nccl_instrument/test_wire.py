"""The trace batch as bytes: literal bytes both ways, every refusal with its reason, and round trips of any content."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from zlib_ng import zlib_ng

from nccl_instrument import tables, wire

BOOT = bytes(range(16))
FOLDER = Path(__file__).parents[1] / "golden"
GOLDEN = FOLDER / "trace-batch-2.6.bin"
TABLES_2_0 = ("comm", "op", "live_op", "flow", "progress", "process", "nic", "loss")
TABLES_2_1 = (*TABLES_2_0, "status")
TABLES_2_2 = (*TABLES_2_1, "schema", "recorder", "stage", "side")
OLDER = {"2.0": TABLES_2_0, "2.1": TABLES_2_1, "2.2": TABLES_2_2, "2.3": (*TABLES_2_2, "traffic"),
         "2.4": (*TABLES_2_2, "traffic"), "2.5": (*TABLES_2_2, "traffic")}  # fmt: skip


SECTION_AT = 60 + 9
BODY_AT = SECTION_AT + 14 + 14
PLANES_AT = BODY_AT + 2
LOSS = tables.empty_rows("loss", 2)
LOSS["kind"], LOSS["pid"], LOSS["count"] = [1, 2], [5, -1], [3, 258]


def make(**rows: np.ndarray) -> wire.TraceBatch:
    return wire.TraceBatch("job", "node-a", BOOT, 7, 1_000, 2_000, rows)


def resealed(data: bytes) -> bytes:
    """`data` with a checksum that fits, to reach the checks behind it."""
    return data[:12] + struct.pack("<I", zlib.crc32(data[16:])) + data[16:]


def loss_batch() -> bytes:
    return wire.encode_batch(make(loss=LOSS))


def test_an_empty_batch_is_these_bytes() -> None:
    rest = BOOT + struct.pack("<QqqHH", 7, 1_000, 2_000, 3, 6) + b"jobnode-a"
    head = b"DGTB\x02\x06\x00\x00" + struct.pack("<II", 0, zlib.crc32(rest))
    assert wire.encode_batch(make()) == head + rest
    assert wire.decode_batch(head + rest) == make()


def test_few_rows_are_sent_as_they_are() -> None:
    body = zlib.compress(bytes.fromhex("01000500000003000000000000000200ffffffff0201000000000000"), 6)
    directory = b"loss\0\0\0\0" + struct.pack("<HI", 14 | 0x8000, 2)
    section = b"live\0\0\0\0" + struct.pack("<IH", len(body), 1) + directory + body
    data = loss_batch()
    assert data[SECTION_AT:] == section
    assert struct.unpack_from("<HI", data, 6) == (1, 28)
    assert (wire.decode_batch(data).rows("loss") == LOSS).all()


def test_many_rows_are_sent_as_these_byte_planes() -> None:
    rows = np.repeat(LOSS, 16)
    planes = bytes.fromhex("01" * 16 + "02" * 16 + "05" * 16 + "ff" * 16 + ("00" * 16 + "ff" * 16) * 3)
    body = zlib.compress(planes + bytes.fromhex("03" * 16 + "02" * 16 + "00" * 16 + "01" * 16), 6)
    # Of the 14 bytes of a row only kind's first, pid's four and count's first two are ever anything but zero.
    directory = b"loss\0\0\0\0" + struct.pack("<HI", 14, 32) + bytes([0b11111101, 0])
    section = b"live\0\0\0\0" + struct.pack("<IH", len(body), 1) + directory + body
    data = wire.encode_batch(make(loss=rows))
    assert data[SECTION_AT:] == section
    assert (wire.decode_batch(data).rows("loss") == rows).all()


ADDED_SINCE = {
    "2.0": {"nic": 3, "comm": 2, "progress": 3},
    "2.1": {"nic": 3, "comm": 2, "progress": 3},
    "2.2": {"nic": 3, "comm": 2, "progress": 3},
    "2.3": {"nic": 1, "comm": 2, "progress": 3},
    "2.4": {"nic": 1, "progress": 3},
    "2.5": {"nic": 1},
}
"""Columns at the end of tables that older versions have, too: these are sent without them, and read as unknown."""


def golden_rows(number: int, table: str, *, without: int = 0) -> wire.Rows:
    """The number-th table's rows, as a version wrote them that had so many columns less."""
    known = tables.row_dtype(tables.TABLES[table][: len(tables.TABLES[table]) - without])
    n_rows = 40 if number % 2 else 3
    raw = (np.arange(n_rows * known.itemsize) * (2 * number + 3) % 251).astype(np.uint8).view(known)
    rows = tables.empty_rows(table, n_rows)
    for name in known.names or ():
        rows[name] = raw[name]
    return rows


def golden_batch(added: dict[str, int] | None = None) -> wire.TraceBatch:
    """Every table, some by rows and some by planes, in rows that no default makes."""
    rows = {
        table: golden_rows(number, table, without=(added or {}).get(table, 0))
        for number, table in enumerate(tables.TABLES)
    }
    return wire.TraceBatch("golden", "node-ü", BOOT, 2**40 + 1, 1_790_000_000 * 10**9, 5_000 * 10**9, rows)


def laid_open(raw: bytes) -> list[bytes]:
    """The bytes of a batch without checksum and with its bodies inflated: zlib may compress them otherwise tomorrow."""
    sections = wire.open_batch(raw).sections
    plain = [
        b"".join((one.packed[:8], one.packed[12 : len(one.packed) - len(one.body)], zlib.decompress(one.body)))
        for one in sections
    ]
    return [raw[:12], raw[16 : len(raw) - sum(len(one.packed) for one in sections)], *plain]


def test_the_golden_batch_is_read_and_written_as_it_was_when_this_version_was_made() -> None:
    """When this fails, agents and stored batches of before cannot be read: raise MAJOR, or mend what was changed."""
    golden, batch = GOLDEN.read_bytes(), golden_batch()
    decoded = wire.decode_batch(golden)
    assert (decoded.job, decoded.node, decoded.number) == ("golden", "node-ü", 2**40 + 1)
    assert {name: rows.tobytes() for name, rows in decoded.tables.items()} == {
        name: rows.tobytes() for name, rows in batch.tables.items()
    }
    assert laid_open(wire.encode_batch(batch)) == laid_open(golden)


@pytest.mark.parametrize("version", OLDER)
def test_golden_batches_of_older_versions_are_still_read(version: str) -> None:
    decoded = wire.decode_batch((FOLDER / f"trace-batch-{version}.bin").read_bytes())
    batch = golden_batch(ADDED_SINCE[version])
    assert {name: rows.tobytes() for name, rows in decoded.tables.items()} == {
        name: batch.tables[name].tobytes() for name in OLDER[version]
    }


def test_an_agent_that_knows_no_kernels_says_nothing_of_them() -> None:
    """0 is unknown: never "not begun"."""
    progress = wire.decode_batch((FOLDER / "trace-batch-2.4.bin").read_bytes()).tables["progress"]
    assert len(progress) and progress["n_enqueued"].all()
    assert not any(progress[name].any() for name in ("kernels_begun", "last_kernel_ns", "kernels_open"))


def test_how_a_table_was_sent_is_read_from_its_bytes_not_from_the_number_of_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few, many = LOSS, np.repeat(LOSS, 50)
    with monkeypatch.context() as patch:
        patch.setattr(wire, "BY_ROWS_MAX", 0)
        few_by_planes = wire.encode_batch(make(loss=few))
        patch.setattr(wire, "BY_ROWS_MAX", 10**6)
        many_by_rows = wire.encode_batch(make(loss=many))
    assert (wire.decode_batch(few_by_planes).rows("loss") == few).all()
    assert (wire.decode_batch(many_by_rows).rows("loss") == many).all()


@pytest.mark.parametrize("inflating", [zlib, zlib_ng], ids=["as on a training node", "as on the server"])
def test_either_library_inflates_a_batch_and_says_where_one_is_broken(
    inflating: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "_INFLATING", inflating)
    raw, batch = GOLDEN.read_bytes(), golden_batch()
    assert wire.decode_batch(raw).tables["op"].tobytes() == batch.tables["op"].tobytes()
    section = wire.open_batch(raw).sections[0]
    broken = section._replace(body=memoryview(b"?" + bytes(section.body)[1:]))
    longer = section._replace(body=memoryview(bytes(section.body) + b"x"))
    for one, reason in ((broken, "does not inflate"), (longer, "inflated size")):
        with pytest.raises(wire.BadBatch, match=reason):
            dict(wire._inflate_section(one))


def test_a_section_alone_is_a_batch_with_the_bytes_that_came() -> None:
    flow = tables.empty_rows("flow", 3)
    flow["op"] = [5, 6, 9]
    packed = wire.open_batch(wire.encode_batch(make(loss=LOSS, flow=flow)))
    assert packed.alone("live") == loss_batch()
    assert packed.alone("ops") is None
    alone = wire.decode_batch(packed.alone("flow") or b"")
    assert set(alone.tables) == {"flow"}
    assert alone.rows("flow")["op"].tolist() == [5, 6, 9]


@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from(sorted(tables.TABLES)))
def test_any_rows_survive_the_round_trip(data: st.DataObject, table: str) -> None:
    raw = data.draw(npst.arrays(np.uint8, (data.draw(st.integers(0, 5)), tables.DTYPE[table].itemsize)))
    raw = np.tile(raw, (data.draw(st.sampled_from([1, 16])), 1))
    rows = np.ascontiguousarray(raw).view(tables.DTYPE[table]).reshape(-1)
    back = wire.decode_batch(wire.encode_batch(make(**{table: rows}))).rows(table)
    assert back.tobytes() == rows.tobytes()


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200), st.booleans(), st.integers(16, BODY_AT + 5))
def test_any_bytes_give_a_batch_or_bad_batch(noise: bytes, with_head: bool, cut: int) -> None:
    try:
        wire.decode_batch(resealed(loss_batch()[:cut] + noise) if with_head else noise)
    except wire.BadBatch as error:
        assert str(error)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda d: d[:10], "truncated"),
        (lambda d: b"X" + d[1:], "magic"),
        (lambda d: d[:4] + b"\x01" + d[5:], "version 1"),
        (lambda d: d[:-1] + bytes([d[-1] ^ 1]), "checksum"),
        (lambda d: resealed(d[:-3]), "truncated"),
        (lambda d: resealed(d + b"more"), "padded"),
        (lambda d: resealed(d[:6] + b"\x11\x00" + d[8:]), "too many sections"),
        (lambda d: resealed(d[:6] + b"\x02\x00" + d[8:] + d[SECTION_AT:]), "twice"),
        (lambda d: resealed(d[:8] + struct.pack("<I", 10**9) + d[12:]), "too large"),
        (lambda d: resealed(d[:8] + struct.pack("<I", 29) + d[12:]), "disagree"),
        (lambda d: resealed(d[:60] + b"\xff" + d[61:]), "utf-8"),
        (lambda d: resealed(d[:60] + b"\x07" + d[61:]), "unprintable"),
        (lambda d: resealed(d[:SECTION_AT] + b"flow" + d[SECTION_AT + 4 :]), "not its own"),
        (lambda d: resealed(d[:BODY_AT] + bytes(len(d) - BODY_AT)), "does not inflate"),
        (lambda d: d + bytes(wire.BATCH_BYTES_MAX), "too large"),
    ],
)
def test_broken_structure_is_refused_with_its_reason(change: Callable[[bytes], bytes], reason: str) -> None:
    wire.decode_batch(loss_batch())
    with pytest.raises(wire.BadBatch, match=reason):
        wire.decode_batch(change(loss_batch()))


def test_a_section_that_inflates_beyond_its_promise_is_refused() -> None:
    bomb = zlib.compress(bytes(10_000_000), 9)
    data = loss_batch()
    sized = data[: SECTION_AT + 8] + struct.pack("<I", len(bomb)) + data[SECTION_AT + 12 : BODY_AT]
    with pytest.raises(wire.BadBatch, match="inflated size"):
        wire.decode_batch(resealed(sized + bomb))


def test_planes_that_are_announced_and_missing_are_refused() -> None:
    data = wire.encode_batch(make(loss=np.repeat(LOSS, 16)))
    with pytest.raises(wire.BadBatch, match="inflated size"):
        wire.decode_batch(resealed(data[: PLANES_AT - 2] + b"\xff" + data[PLANES_AT - 1 :]))


def test_rows_of_nothing_but_zeros_count_towards_the_promise_though_nothing_is_sent_of_them() -> None:
    data = loss_batch()
    directory = b"loss\0\0\0\0" + struct.pack("<HI", 14, 500_000) + bytes(2)
    section = b"live\0\0\0\0" + struct.pack("<IH", 8, 1) + directory + zlib.compress(b"")
    with pytest.raises(wire.BadBatch, match="disagree"):
        wire.decode_batch(resealed(data[:SECTION_AT] + section))


def test_what_refused_bytes_claim_is_read_without_trust() -> None:
    data = loss_batch()
    assert wire.claimed_names(data[:-1]) == ("job", "node-a")
    assert wire.promised_bytes(data) == 28
    assert wire.claimed_names(data[:60] + b"\xff" + data[61:]) == ("", "")
    assert (wire.claimed_names(data[:59]), wire.promised_bytes(data[:59])) == (("", ""), 0)


def test_columns_and_tables_of_a_newer_minor_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    newer = (*tables.TABLES["loss"], tables.Column("why", "<u4"))
    rows = np.zeros(2, tables.row_dtype(newer))
    rows["count"], rows["why"] = [4, 5], [9, 9]
    with monkeypatch.context() as patch:
        patch.setitem(tables.TABLES, "loss", newer)
        patch.setitem(tables.DTYPE, "loss", rows.dtype)
        patch.setitem(tables.TABLES, "novel", newer)
        patch.setitem(tables.DTYPE, "novel", rows.dtype)
        patch.setitem(tables.GROUPS, "live", ("novel", *tables.GROUPS["live"]))
        patch.setitem(tables.GROUPS, "later", ("later",))
        patch.setitem(tables.TABLES, "later", newer)
        patch.setitem(tables.DTYPE, "later", rows.dtype)
        data = wire.encode_batch(make(novel=rows, loss=rows, later=rows))
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
