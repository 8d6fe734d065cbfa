"""The NICs of a node, read once a second from sysfs: port state, speed, traffic, errors, retransmits.

Understands both kinds of folder: a network interface (/sys/class/net/eth0) and an InfiniBand or RoCE port
(/sys/class/infiniband/mlx5_0/ports/1). Reading may block while a driver talks to a dying card, which is the very moment
the other records matter, so it has a thread of its own and a reading that is too old is sent as unknown.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nccl_instrument.agent.plain import stack
from nccl_instrument.tables import PORT_STATES, empty_rows
from nccl_instrument.wire import Rows

UNKNOWN_COUNT: Final = 2**64 - 1  # a counter the driver does not have; 0 would read as "no errors"
STALE_NS: Final = 5 * 10**9
NICS_MAX: Final = 64
_PERIOD_S: Final = 1.0
_FULL: Final = 2**32 - 1
"""port_xmit_wait stops there until somebody resets it, which needs root: from then on it tells nothing."""
_IB_WORD_BYTES: Final = 4  # port_rcv_data and port_xmit_data count 4-byte words

_UNKNOWN, _UP, _DOWN = (PORT_STATES.index(name) for name in ("unknown", "up", "down"))

# Wire column → the sysfs files whose sum it is; files that do not exist are left out, none at all is unknown.
_NET_FILES: Final = {
    "rx_bytes": ("statistics/rx_bytes",),
    "tx_bytes": ("statistics/tx_bytes",),
    "errors": ("statistics/rx_errors", "statistics/tx_errors"),
    "drops": ("statistics/rx_dropped", "statistics/tx_dropped"),
    "retransmits": (),
    "xmit_wait": (),
}
_IB_FILES: Final = {
    "rx_bytes": ("counters/port_rcv_data",),
    "tx_bytes": ("counters/port_xmit_data",),
    "errors": ("counters/symbol_error", "counters/port_rcv_errors", "counters/local_link_integrity_errors"),
    "drops": ("counters/port_xmit_discards", "hw_counters/out_of_buffer"),
    "retransmits": ("hw_counters/packet_seq_err", "hw_counters/local_ack_timeout_err", "hw_counters/rnr_nak_retry_err"),
    "xmit_wait": ("counters/port_xmit_wait",),
}


@dataclass(frozen=True, slots=True)
class Nic:
    """A NIC under the name NCCL or the operator gives it, and its sysfs folder."""

    name: str
    folder: Path


def find_nics(given: Sequence[Nic]) -> list[Nic]:
    """The NICs the operator named, else every InfiniBand port, else every network interface with a device behind it."""
    if given:
        return list(given)[:NICS_MAX]
    ports = sorted(Path("/sys/class/infiniband").glob("*/ports/1"))
    if ports:
        return [Nic(port.parts[-3], port) for port in ports][:NICS_MAX]
    interfaces = sorted(device.parent for device in Path("/sys/class/net").glob("*/device"))
    return [Nic(interface.name, interface) for interface in interfaces][:NICS_MAX]


def read_nic(index: int, nic: Nic, tick_ns: int) -> Rows:
    """(1,) row of the `nic` table as of `tick_ns`."""
    row = empty_rows("nic", 1)
    row["tick_ns"], row["index"], row["name"] = tick_ns, index, nic.name.encode()
    is_ib = (nic.folder / "counters").is_dir()
    row["port_state"] = _ib_state(nic.folder) if is_ib else _net_state(nic.folder)
    row["speed_mbps"] = _ib_speed(nic.folder) if is_ib else max(0, _number(f"{nic.folder}/speed") or 0)
    for column, files in (_IB_FILES if is_ib else _NET_FILES).items():
        count = _sum(nic.folder, files)
        scale = _IB_WORD_BYTES if is_ib and column.endswith("_bytes") else 1
        if column == "xmit_wait" and (count == _FULL or _is_ethernet(nic.folder)):
            count = None
        row[column] = UNKNOWN_COUNT if count is None else count * scale % UNKNOWN_COUNT
    return row


def unknown_nic(index: int, nic: Nic, tick_ns: int) -> Rows:
    """(1,) row that says nothing is known of this NIC at `tick_ns`."""
    row = empty_rows("nic", 1)
    row["tick_ns"], row["index"], row["name"] = tick_ns, index, nic.name.encode()
    for column in _NET_FILES:
        row[column] = UNKNOWN_COUNT
    return row


class NicReader(threading.Thread):
    """Keeps the newest reading of every NIC; `rows` never waits for a driver."""

    def __init__(self, nics: list[Nic]) -> None:
        super().__init__(name="nics", daemon=True)
        self.nics = nics
        self._rows: dict[int, Rows] = {}
        self._stopped = threading.Event()

    def run(self) -> None:
        while not self._stopped.is_set():
            for index, nic in enumerate(self.nics):
                self._rows[index] = read_nic(index, nic, time.monotonic_ns())
            self._stopped.wait(_PERIOD_S)

    def stop(self) -> None:
        self._stopped.set()

    def rows(self, now_ns: int) -> Rows:
        """(number of NICs,) rows, unknown where the last reading is older than STALE_NS."""
        rows = [self._fresh(index, nic, now_ns) for index, nic in enumerate(self.nics)]
        return stack(rows) if rows else empty_rows("nic")

    def _fresh(self, index: int, nic: Nic, now_ns: int) -> Rows:
        row = self._rows.get(index)
        if row is None or now_ns - int(row["tick_ns"][0]) > STALE_NS:
            return unknown_nic(index, nic, now_ns)
        return row


def _net_state(folder: Path) -> int:
    """`carrier` is unreadable while an interface is administratively down, then `operstate` says so."""
    carrier = _text(f"{folder}/carrier")
    operstate = _text(f"{folder}/operstate")
    if carrier == "0" or operstate in ("down", "lowerlayerdown", "notpresent"):
        return _DOWN
    return _UP if carrier == "1" or operstate == "up" else _UNKNOWN


def _ib_state(folder: Path) -> int:
    """`state` reads '4: ACTIVE'."""
    name = _text(f"{folder}/state").rpartition(":")[2].strip()
    return {"ACTIVE": _UP, "DOWN": _DOWN, "INIT": _DOWN, "ARMED": _DOWN}.get(name, _UNKNOWN)


def _is_ethernet(folder: Path) -> bool:
    """Whether an RDMA port is RoCE. Ethernet grants no credits: its port_xmit_wait, if it moves at all, counts something else."""
    return _text(f"{folder}/link_layer") == "Ethernet"


def _ib_speed(folder: Path) -> int:
    """`rate` reads '400 Gb/sec (4X NDR)'."""
    words = _text(f"{folder}/rate").split()
    return int(float(words[0]) * 1000) if words and words[0].replace(".", "", 1).isdigit() else 0


def _sum(folder: Path, files: tuple[str, ...]) -> int | None:
    """Of those files that the port has; None where it has none, or one of them cannot be read."""
    counts = {name: _number(f"{folder}/{name}") for name in files}
    is_whole = not any(count is None and os.path.exists(f"{folder}/{name}") for name, count in counts.items())
    known = [count for count in counts.values() if count is not None]
    return sum(known) if known and is_whole else None


def _number(path: str) -> int | None:
    text = _text(path)
    return int(text) if text.lstrip("-").isdigit() else None


def _text(path: str) -> str:
    """At most 256 characters of a file, '' when it cannot be read. Plain calls: pathlib would cost more than the kernel."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(descriptor, 256).decode("ascii", "replace").strip()
    except OSError:
        return ""
    finally:
        os.close(descriptor)
