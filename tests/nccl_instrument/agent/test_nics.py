"""NICs from folders laid out as the kernel does: interfaces and InfiniBand ports, down, missing and slow to answer."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nccl_instrument.agent.nics import STALE_NS, UNKNOWN_COUNT, Nic, NicReader, find_nics, read_nic
from nccl_instrument.tables import PORT_STATES

from .scripted_server import wait_until


def make_folder(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text + "\n")
    return folder


INTERFACE = {
    "operstate": "up", "carrier": "1", "speed": "25000", "statistics/rx_bytes": "100", "statistics/tx_bytes": "200",
    "statistics/rx_errors": "1", "statistics/tx_errors": "2", "statistics/rx_dropped": "3", "statistics/tx_dropped": "4",
}  # fmt: skip
PORT = {
    "state": "4: ACTIVE", "rate": "400 Gb/sec (4X NDR)", "counters/port_rcv_data": "10", "counters/port_xmit_data": "20",
    "counters/symbol_error": "1", "counters/port_xmit_discards": "5", "hw_counters/packet_seq_err": "2",
    "hw_counters/local_ack_timeout_err": "3", "counters/port_xmit_wait": "9",
}  # fmt: skip


def test_an_interface_tells_traffic_errors_and_drops_but_no_retransmits_nor_waits(tmp_path: Path) -> None:
    row = read_nic(2, Nic("eth0", make_folder(tmp_path, INTERFACE)), 7)[0]
    assert row.item() == (7, 2, b"eth0", 1, 25000, 100, 200, 3, 7, UNKNOWN_COUNT, UNKNOWN_COUNT, 0, UNKNOWN_COUNT)


def test_an_infiniband_port_counts_in_words_and_tells_retransmits_and_waits(tmp_path: Path) -> None:
    row = read_nic(0, Nic("mlx5_0", make_folder(tmp_path, PORT)), 7)[0]
    assert row.item() == (7, 0, b"mlx5_0", 1, 400_000, 40, 80, 1, 5, 5, UNKNOWN_COUNT, 0, 9)


def test_waits_that_have_reached_all_that_the_port_can_count_are_unknown(tmp_path: Path) -> None:
    full = make_folder(tmp_path, {**PORT, "counters/port_xmit_wait": str(2**32 - 1)})
    assert read_nic(0, Nic("mlx5_0", full), 7)["xmit_wait"].tolist() == [UNKNOWN_COUNT]


@pytest.mark.parametrize(("link_layer", "waits"), [("InfiniBand", 9), ("Ethernet", UNKNOWN_COUNT)])
def test_waits_of_a_roce_port_are_unknown_as_ethernet_grants_no_credits(
    link_layer: str, waits: int, tmp_path: Path
) -> None:
    port = make_folder(tmp_path, {**PORT, "link_layer": link_layer})
    row = read_nic(0, Nic("mlx5_0", port), 7)[0]
    assert row["xmit_wait"] == waits and row["retransmits"] == 5


@pytest.mark.parametrize(
    ("files", "state"),
    [
        ({"operstate": "up", "carrier": "0"}, "down"),
        ({"operstate": "down"}, "down"),
        ({"operstate": "lowerlayerdown", "carrier": "0"}, "down"),
        ({"operstate": "unknown", "carrier": "1"}, "up"),
        ({"operstate": "unknown"}, "unknown"),
        ({}, "unknown"),
        ({"counters/x": "1", "state": "1: DOWN"}, "down"),
        ({"counters/x": "1", "state": "2: INIT"}, "down"),
        ({"counters/x": "1", "state": "nonsense"}, "unknown"),
    ],
)
def test_the_port_state_is_up_down_or_honestly_unknown(files: dict[str, str], state: str, tmp_path: Path) -> None:
    row = read_nic(0, Nic("n", make_folder(tmp_path, files)), 1)[0]
    assert PORT_STATES[row["port_state"]] == state
    assert row["errors"] == UNKNOWN_COUNT


def test_a_sum_of_which_one_part_cannot_be_read_is_unknown_and_no_smaller_sum(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, {**INTERFACE, "statistics/rx_errors": "broken"})
    row = read_nic(0, Nic("n", folder), 1)[0]
    assert row["errors"] == UNKNOWN_COUNT


def test_a_folder_that_does_not_exist_is_unknown_in_every_column(tmp_path: Path) -> None:
    row = read_nic(0, Nic("gone", tmp_path / "gone"), 1)[0]
    assert row.item() == (1, 0, b"gone", 0, 0, *[UNKNOWN_COUNT] * 6, 0, UNKNOWN_COUNT)


def test_a_driver_that_does_not_answer_makes_its_nic_unknown_and_holds_nobody_up(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "slow", INTERFACE)
    (folder / "carrier").unlink()
    os.mkfifo(folder / "carrier")  # reading it blocks, as sysfs may
    reader = NicReader([Nic("good", make_folder(tmp_path / "good", INTERFACE)), Nic("slow", folder)])
    reader.start()
    wait_until(lambda: reader.rows(0)["port_state"].tolist() == [1, 0])
    read_ns = int(reader.rows(0)["tick_ns"][0])
    assert reader.rows(read_ns + STALE_NS + 1)["port_state"].tolist() == [0, 0]
    reader.stop()
    os.close(os.open(folder / "carrier", os.O_WRONLY))


def test_the_operators_nics_are_the_only_ones(tmp_path: Path) -> None:
    given = [Nic("a", tmp_path)]
    assert find_nics(given) == given
