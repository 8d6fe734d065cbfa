"""The reader refuses what is no segment, says why, and leaves out rows that are being rewritten."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from nccl_instrument.agent.processes import segment as module
from nccl_instrument.agent.processes.ring import OpRing
from nccl_instrument.agent.processes.segment import Segment, SegmentError, SegmentNotReady
from nccl_instrument.agent.processes.segment_layout import HEADER, OP, ROW_LIVE
from tests.nccl_instrument.plugin.driver import Driver

Drive = Callable[..., Driver]


@pytest.fixture
def copy(drive: Drive, tmp_path: Path) -> Path:
    """A segment's bytes in a file that the test may damage."""
    driver = drive(5, "hang")
    driver.until("moved")
    path = tmp_path / "copy"
    path.write_bytes(driver.files()[0].read_bytes())
    return path


def _damage(path: Path, field: str, value: int) -> None:
    view = np.memmap(path, HEADER, "r+", shape=1)
    view[field] = value
    view.flush()


def test_an_undamaged_copy_reads_like_the_original(copy: Path) -> None:
    segment = Segment.open(copy)
    assert len(segment.live_flows()) == 8 and not segment.is_alive()
    segment.close()


def test_a_closed_segment_lets_go_though_its_ring_is_still_held(copy: Path) -> None:
    segment = Segment.open(copy)
    ring, flows = segment.op_ring(), segment.live_flows()
    segment.close()
    assert len(flows) == 8 and len(ring.drain()[0]) == 4


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("byte_order", 0x04030201, "other byte order"),
        ("major", 2, "version 2.x is not supported"),
        ("segment_bytes", 1 << 40, "truncated"),
        ("n_sections", 99, "99 sections"),
        ("n_sections", 3, "no section"),
    ],
)
def test_a_damaged_header_is_refused_with_the_reason(copy: Path, field: str, value: int, reason: str) -> None:
    _damage(copy, field, value)
    with pytest.raises(SegmentError, match=reason):
        Segment.open(copy)


@pytest.mark.parametrize("field", ["offset", "row_bytes", "n_rows"])
def test_a_section_that_does_not_fit_is_refused(copy: Path, field: str) -> None:
    view = np.memmap(copy, HEADER, "r+", shape=1)
    view["sections"][0, 2][field] = 7 if field == "row_bytes" else 1 << 28
    view.flush()
    with pytest.raises(SegmentError, match="'op'"):
        Segment.open(copy)


def test_a_file_the_plugin_is_still_making_is_not_ready(tmp_path: Path) -> None:
    path = tmp_path / "diogenes.0.1.1"
    path.write_bytes(b"")
    with pytest.raises(SegmentNotReady, match="truncated"):
        Segment.open(path)
    path.write_bytes(bytes(1 << 20))
    with pytest.raises(SegmentNotReady, match="not written yet"):
        Segment.open(path)
    path.write_bytes(b"x" * (1 << 20))
    with pytest.raises(SegmentError, match="magic"):
        Segment.open(path)


def test_a_process_refuses_to_open_its_own_segment(tmp_path: Path) -> None:
    with pytest.raises(SegmentError, match="drop its lock"):
        Segment.open(tmp_path / f"diogenes.0.{os.getpid()}.1")


def test_a_refused_file_leaves_no_descriptor_open(copy: Path) -> None:
    _damage(copy, "major", 9)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        with pytest.raises(SegmentError):
            Segment.open(copy)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_row_that_changes_during_every_copy_is_left_out_and_counted(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment = Segment.open(copy)
    states = np.memmap(copy, "u4", "r+", offset=int(segment._header["sections"][0, 3]["offset"]), shape=64)
    row = int(np.flatnonzero((states & 0xFF) == ROW_LIVE)[0])
    copied = module._copy_in_order

    def rewritten_meanwhile(table: module.Rows, at: np.ndarray) -> module.Rows:
        states[row] += 1 << 8
        return copied(table, at)

    monkeypatch.setattr(module, "_copy_in_order", rewritten_meanwhile)
    assert len(segment.live_flows()) == 7 and segment.torn_rows == 1


def _ring(n_rows: int, stamps: list[int], head: int) -> OpRing:
    rows = np.zeros(n_rows, OP)
    rows["stamp"], rows["op"] = stamps, np.arange(n_rows)
    return OpRing(np.array([head], np.uint64), rows, 0)


def test_a_record_still_being_written_is_waited_for_once() -> None:
    ring = _ring(8, [2, 3, 6, 0, 0, 0, 0, 0], 3)
    rows, lost = ring.drain()
    assert list(rows["op"]) == [0] and lost == 0 and ring.position == 1
    ring._ring["stamp"][1] = 4
    rows, lost = ring.drain()
    assert list(rows["op"]) == [1, 2] and lost == 0


def test_a_record_never_finished_is_lost_and_holds_nothing_up() -> None:
    ring = _ring(8, [2, 3, 6, 0, 0, 0, 0, 0], 3)
    ring.drain()
    rows, lost = ring.drain()
    assert list(rows["op"]) == [2] and lost == 1 and ring.position == 3


def test_a_reader_that_was_away_for_more_than_a_lap_counts_what_it_missed() -> None:
    ring = _ring(4, [2 * 9, 2 * 10, 2 * 7, 2 * 8], 10)
    rows, lost = ring.drain()
    assert list(rows["op"]) == [2, 3, 0, 1] and lost == 6 and ring.position == 10


def test_a_ring_reader_goes_on_where_the_last_one_stopped() -> None:
    ring = _ring(4, [2, 4, 6, 0], 3)
    assert [len(ring.drain()[0]), len(ring.drain()[0])] == [3, 0]
    again = OpRing(ring._head, ring._ring, ring.position)
    assert len(again.drain()[0]) == 0
