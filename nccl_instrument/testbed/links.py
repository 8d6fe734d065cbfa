"""What the two kinds of links have in common: real ones (namespaces.py) and paced ones (paced.py).

The job knows only this interface. Each NIC gets a folder shaped like /sys/class/net/<interface>, which agents read:
operstate, carrier, speed and statistics, seen from the node's side.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from .layout import Nic

STATISTICS = ("rx_bytes", "tx_bytes", "rx_packets", "tx_packets", "rx_errors", "tx_errors", "rx_dropped", "tx_dropped")


class LinkError(RuntimeError):
    """Links cannot be made or changed; the message is one sentence."""


class Links(Protocol):
    is_paced: bool

    def create(self) -> None: ...
    def remove(self) -> None: ...
    def address_of(self, nic: Nic) -> str: ...
    def device_of(self, nic: Nic) -> str: ...
    def namespace_file(self, node: int) -> str | None: ...
    def sysfs_of(self, nic: Nic) -> Path: ...
    def set_up(self, nic: Nic, is_up: bool) -> None: ...
    def set_share(self, nic: Nic, share: float) -> None:
        """Limits the NIC to a share of its rate, both directions; 1.0 is healthy."""

    def refresh(self) -> None:
        """Brings the NIC folders up to date, where the kernel does not do it."""


def write_nic_file(folder: Path, name: str, value: object) -> None:
    path = folder / name
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(f"{value}\n")
    fresh.rename(path)  # readers never see half a number
