"""The faults that can be injected and healed while the job runs. Each acts on the mechanism, never on the trace.

What was injected goes to truth.jsonl, which the analysis never reads. Component and kind are those of the evaluation's
truth table. A fault on a NIC counts all ranks that use the NIC.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from .layout import Layout
from .links import Links
from .pages import HEALTHY_MILLI, ControlPage

NS_PER_S = 1_000_000_000
FOR_EVER_S = 10 * 365 * 86400.0
PAUSE_LEAD_ITERATIONS = 2  # ranks are never further apart: the world AllReduce of each step ties them


class FaultError(ValueError):
    """The request makes no sense; the message is one sentence."""


UNDONE: Final = ("nic_down", "nic_limit", "rank_frozen", "proxy_sleep", "slow_copies", "slow_compute", "stuck_before")
"""Faults that last until they are healed."""


@dataclass(frozen=True)
class FaultKind:
    component: str
    kind: str
    parameter: str = ""  # what --amount means
    default: float = 0.0
    is_on_nic: bool = False
    is_on_job: bool = False


KINDS = {
    "nic_down": FaultKind("nic", "communication, fail-stop", is_on_nic=True),
    "nic_limit": FaultKind("nic", "communication, fail-slow", "share of the rate that is left", 0.3, is_on_nic=True),
    "rank_frozen": FaultKind("process", "computation, fail-stop"),
    "rank_killed": FaultKind("process", "computation, fail-stop"),
    "proxy_sleep": FaultKind("proxy", "computation, fail-slow", "seconds", FOR_EVER_S),
    "slow_copies": FaultKind("copy", "computation, fail-slow", "times slower", 3.0),
    "slow_compute": FaultKind("gpu", "computation, fail-slow", "times slower", 2.0),
    "stuck_before": FaultKind("software", "computation, fail-stop"),
    "checkpoint": FaultKind("none", "healthy", "seconds", 5.0),
    "pause": FaultKind("none", "healthy", "seconds", 5.0, is_on_job=True),
    "corrupt": FaultKind("copy", "wrong data"),
}


@dataclass
class Fault:
    fault: str
    rank: int | None
    amount: float
    component: str
    kind: str
    ranks: list[int]
    node: str | None
    nic: str | None
    injected_at: float  # wall clock, seconds
    injected_ns: int  # monotonic
    healed_at: float | None = None


@dataclass
class Faults:
    layout: Layout
    page: ControlPage
    links: Links
    pids: list[int]
    truth_path: Path
    found: list[Fault] = field(default_factory=list)

    def inject(self, name: str, rank: int | None = None, amount: float | None = None) -> Fault:
        """Raises FaultError when the fault is unknown, its victim missing or its amount senseless."""
        kind = self._checked_kind(name, rank)
        amount = self._checked_amount(name, kind, amount)
        self._apply(name, rank or 0, amount)
        fault = self._describe(name, kind, rank, amount)
        self.found.append(fault)
        self._write_truth("injected", fault)
        return fault

    def heal(self, name: str = "", rank: int | None = None) -> list[Fault]:
        """Takes back the active faults of this name, all that can be where none is given, on one rank or all; raises FaultError
        when there is none."""
        if name == "rank_killed":
            raise FaultError("A killed rank cannot be healed: restart the job with --restart-count 1.")
        those = [f for f in self.active() if name in ("", f.fault) and rank in (None, f.rank)]
        healed = those if name else [f for f in those if f.fault in UNDONE]
        if not healed:
            raise FaultError(
                f"No active fault{' ' + name if name else ''}{f' on rank {rank}' if rank is not None else ''}."
            )
        for fault in healed:
            self._undo(fault.fault, fault.rank or 0)
            fault.healed_at = time.time()
            self._write_truth("healed", fault)
        return healed

    def active(self) -> list[Fault]:
        return [fault for fault in self.found if fault.healed_at is None]

    def killed_ranks(self) -> set[int]:
        return {f.rank for f in self.found if f.fault == "rank_killed" and f.rank is not None}

    def _checked_kind(self, name: str, rank: int | None) -> FaultKind:
        kind = KINDS.get(name)
        if kind is None:
            raise FaultError(f"There is no fault “{name}”; there are: {', '.join(KINDS)}.")
        if rank is None and not kind.is_on_job and name != "checkpoint":
            raise FaultError(f"{name} needs --rank.")
        if rank is not None and not 0 <= rank < self.layout.n_ranks:
            raise FaultError(f"There is no rank {rank}: the job has ranks 0 to {self.layout.n_ranks - 1}.")
        return kind

    @staticmethod
    def _checked_amount(name: str, kind: FaultKind, amount: float | None) -> float:
        amount = kind.default if amount is None else amount
        if kind.parameter and not amount > 0:
            raise FaultError(f"{name} needs an amount above 0 ({kind.parameter}).")
        if name == "nic_limit" and amount > 1:
            raise FaultError("nic_limit takes the share of the rate that is left, between 0 and 1.")
        return amount

    def _apply(self, name: str, rank: int, amount: float) -> None:
        nic, until_ns = self.layout.nic_of(rank), time.monotonic_ns() + int(amount * NS_PER_S)
        actions: dict[str, Callable[[], None]] = {
            "nic_down": lambda: self.links.set_up(nic, False),
            "nic_limit": lambda: self.links.set_share(nic, amount),
            "rank_frozen": lambda: os.kill(self.pids[rank], signal.SIGSTOP),
            "rank_killed": lambda: os.kill(self.pids[rank], signal.SIGKILL),
            "proxy_sleep": lambda: self.page.set_rank(rank, "proxy_sleep_until_ns", until_ns),
            "slow_copies": lambda: self.page.set_rank(rank, "copy_factor_milli", int(amount * HEALTHY_MILLI)),
            "slow_compute": lambda: self.page.set_rank(rank, "compute_factor_milli", int(amount * HEALTHY_MILLI)),
            "stuck_before": lambda: self.page.set_rank(rank, "is_stuck_before", 1),
            "checkpoint": lambda: self.page.set_rank(rank, "checkpoint_ns", int(amount * NS_PER_S)),
            "pause": lambda: self._pause(amount),
            "corrupt": lambda: self.page.set_rank(rank, "corrupt_next", 1),
        }
        actions[name]()

    def _pause(self, seconds: float) -> None:
        self.page.set_job("pause_ns", int(seconds * NS_PER_S))
        self.page.set_job("pause_at", max(self.page.iterations()) + PAUSE_LEAD_ITERATIONS)

    def _undo(self, name: str, rank: int) -> None:
        nic = self.layout.nic_of(rank)
        if name not in UNDONE:
            raise FaultError(f"{name} ends by itself.")
        actions: dict[str, Callable[[], None]] = {
            "nic_down": lambda: self.links.set_up(nic, True),
            "nic_limit": lambda: self.links.set_share(nic, 1.0),
            "rank_frozen": lambda: os.kill(self.pids[rank], signal.SIGCONT),
            "proxy_sleep": lambda: self.page.set_rank(rank, "proxy_sleep_until_ns", 0),
            "slow_copies": lambda: self.page.set_rank(rank, "copy_factor_milli", HEALTHY_MILLI),
            "slow_compute": lambda: self.page.set_rank(rank, "compute_factor_milli", HEALTHY_MILLI),
            "stuck_before": lambda: self.page.set_rank(rank, "is_stuck_before", 0),
        }
        actions[name]()

    def _describe(self, name: str, kind: FaultKind, rank: int | None, amount: float) -> Fault:
        fault = Fault(name, rank, amount, kind.component, kind.kind, [], None, None, time.time(), time.monotonic_ns())
        if kind.is_on_job:
            return fault
        nic = self.layout.nic_of(rank or 0)
        fault.ranks = self.layout.ranks_on_nic(nic) if kind.is_on_nic else [rank or 0]
        fault.node = f"node{nic.node}"
        fault.nic = nic.name if kind.is_on_nic else None
        return fault

    def _write_truth(self, what: str, fault: Fault) -> None:
        with self.truth_path.open("a") as file:
            file.write(json.dumps({"what": what, **asdict(fault)}) + "\n")
