"""One stream of batches per job on the node: its boot id, its batch numbers, and what the server asked for again.

Numbers start at 0 in every boot, so that the server can tell a repeated batch from a new one and sees a gap.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Final

from nccl_instrument.wire import NAME_BYTES_MAX

COMM_PERIOD_NS: Final = 30 * 10**9
ADVICE: Final = "set DIOGENES_JOB to the job's name"


@dataclass
class JobStream:
    """Batches of one job from this agent."""

    job: str
    boot_id: bytes = field(default_factory=lambda: os.urandom(16))
    number: int = 0
    _comms_sent_ns: int | None = None
    _wants_comms: bool = False

    def next_number(self) -> int:
        number, self.number = self.number, self.number + 1
        return number

    def ask_for(self, tables: tuple[str, ...]) -> None:
        """The server wants these tables again; only `comm` is not sent every second anyway."""
        self._wants_comms |= "comm" in tables

    def owes_comms(self, now_ns: int) -> bool:
        """Whether this cut carries all communicators: the first one, every COMM_PERIOD_NS, and when asked."""
        if self._comms_sent_ns is None or self._wants_comms or now_ns - self._comms_sent_ns >= COMM_PERIOD_NS:
            self._comms_sent_ns, self._wants_comms = now_ns, False
            return True
        return False


def name_problem(name: str, what: str) -> str:
    """Why `name` cannot travel in a batch, '' when it can."""
    if not name:
        return f"no {what} name"
    if len(name.encode()) > NAME_BYTES_MAX:
        return f"{what} name of more than {NAME_BYTES_MAX} bytes"
    return "" if name.isprintable() else f"{what} name with unprintable characters"
