"""An uplink with everything around it, and batches to give it."""

from __future__ import annotations

from pathlib import Path

from nccl_instrument.agent.sending.losses import Losses
from nccl_instrument.agent.sending.post import Door
from nccl_instrument.agent.sending.spool import Spool
from nccl_instrument.agent.sending.uplink import Uplink
from nccl_instrument.tables import LOSSES
from nccl_instrument.wire import TraceBatch, encode_batch

BOOT = bytes(16)


def encoded(number: int, job: str = "job", **rows: object) -> bytes:
    return encode_batch(TraceBatch(job, "node", BOOT, number, 1, 1, rows))  # type: ignore[arg-type]


class Rig:
    """An uplink with its spool, losses and what the server wanted again; `start` may be called once more after `stop`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.token = folder / "token"
        self.token.write_text("secret-token\n")
        self.losses = Losses()
        self.resent: list[tuple[str, tuple[str, ...]]] = []

    def start(self, url: str, spool_bytes: int = 2**20) -> Uplink:
        self.spool = Spool(self.folder / "spool", spool_bytes)
        door = Door(url, self.token, timeout_s=2)
        self.uplink = Uplink(door, self.spool, self.losses)
        self.uplink.resend = lambda job, names: self.resent.append((job, names))
        self.uplink.start()
        return self.uplink

    def stop(self) -> None:
        self.uplink.stop()
        assert not self.uplink.is_alive()
        self.spool.close()

    def lost(self, job: str = "job") -> dict[str, int]:
        return {LOSSES[row["kind"]]: int(row["count"]) for row in self.losses.take(job)}


def with_backlog(rig: Rig, n_batches: int) -> None:
    spool = Spool(rig.folder / "spool", 2**20)
    for number in range(n_batches):
        assert spool.put(encoded(number)) == []
    spool.close()
