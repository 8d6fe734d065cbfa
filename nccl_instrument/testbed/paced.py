"""Paced links, for people who are not root: loopback sockets, and NICs that are clocks in the control page.

The kernel can pace a single socket (SO_MAX_PACING_RATE), but several flows share a NIC and must share its rate, so the
ranks' transport paces slices by a clock per NIC and direction instead. A NIC that is down moves nothing, in either
direction and at either end. The NIC folders are kept by the testbed.
"""

from __future__ import annotations

from pathlib import Path

from .layout import Layout, Nic
from .links import STATISTICS, write_nic_file
from .pages import ControlPage


class PacedLinks:
    is_paced = True

    def __init__(self, layout: Layout, page: ControlPage, link_bytes_per_s: int, sysfs_root: Path) -> None:
        self.layout = layout
        self.page = page
        self.bytes_per_s = link_bytes_per_s
        self.sysfs_root = sysfs_root

    def create(self) -> None:
        for nic in self.layout.nics:
            folder = self.sysfs_of(nic)
            (folder / "statistics").mkdir(parents=True)
            write_nic_file(folder, "speed", round(self.bytes_per_s * 8 / 1e6))
            write_nic_file(folder, "address", f"02:00:00:00:{nic.node:02x}:{nic.number:02x}")
            for name in STATISTICS:
                write_nic_file(folder / "statistics", name, 0)
        self.refresh()

    def remove(self) -> None:
        """Nothing to do: the folders go with the run folder."""

    def address_of(self, nic: Nic) -> str:
        return "127.0.0.1"

    def device_of(self, nic: Nic) -> str:
        return "-"

    def namespace_file(self, node: int) -> str | None:
        return None

    def sysfs_of(self, nic: Nic) -> Path:
        return self.sysfs_root / f"node{nic.node}" / nic.name

    def set_up(self, nic: Nic, is_up: bool) -> None:
        self.page.set_nic(nic.number, "is_up", int(is_up))
        self.refresh()

    def set_share(self, nic: Nic, share: float) -> None:
        self.page.set_nic(nic.number, "bytes_per_s", max(1000, int(self.bytes_per_s * share)))

    def refresh(self) -> None:
        for nic in self.layout.nics:
            folder, is_up = self.sysfs_of(nic), self.page.read_nic(nic.number, "is_up")
            write_nic_file(folder, "operstate", "up" if is_up else "down")
            write_nic_file(folder, "carrier", is_up)
            for direction in ("rx", "tx"):
                name = f"{direction}_bytes"
                write_nic_file(folder / "statistics", name, self.page.read_nic(nic.number, name))
