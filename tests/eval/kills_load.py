"""Load for the suite `kills`: a job of some tens of nodes that are agents in all but the sweep.

Each node cuts a small batch a second and sends it through the agent's own uplink and spool, so that outages meet what a
real agent does. Every batch the server acknowledges is noted with its boot and number: those must be in the database
afterwards, each once.
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path

from nccl_instrument.agent.sending.losses import Losses
from nccl_instrument.agent.sending.post import Answer, Door
from nccl_instrument.agent.sending.spool import Spool
from nccl_instrument.agent.sending.uplink import Uplink
from nccl_instrument.wire import TraceBatch, encode_batch
from tests.builders import FakeJob, boot_id, comm_rows, live_op_rows, nic_rows, op_rows, process_rows, progress_rows

JOB = "kills-load"
SPOOL_BYTES_MAX = 64 * 2**20
NUMBER = slice(32, 40)  # where the wire format has a batch's number: decoding each would cost the load its lightness


class NotingDoor(Door):
    """A door that notes the numbers of what was acknowledged, in the order of the answers."""

    def __init__(self, server: str, token_file: Path) -> None:
        super().__init__(server, token_file)
        self.acknowledged: dict[int, None] = {}
        self.newest = -1

    def post(self, encoded: bytes) -> Answer:
        answer = super().post(encoded)
        if answer.is_accepted:
            number = int.from_bytes(encoded[NUMBER], "little")
            self.acknowledged[number] = None
            self.newest = max(self.newest, number)
        return answer


class LoadNode:
    """One node of the load: what it cut, what was acknowledged, what waits."""

    def __init__(self, index: int, server: str, token_file: Path, folder: Path) -> None:
        self.index, self.boot = index, boot_id(index, life=7)
        self.door = NotingDoor(server, token_file)
        self.losses = Losses()
        self.spool = Spool(folder / f"load-{index}", SPOOL_BYTES_MAX)
        self.uplink = Uplink(self.door, self.spool, self.losses)
        self.uplink.start()
        self.cut_at: list[float] = []  # by number

    def cut(self, job: FakeJob, mono_ns: int) -> None:
        number = len(self.cut_at)
        self.cut_at.append(time.time())
        self.uplink.offer(job.name, encode_batch(made(job, self.index, self.boot, number, mono_ns)))

    def newest_acknowledged_cut(self) -> float:
        """When the newest batch that was acknowledged had been cut, unix seconds."""
        return self.cut_at[self.door.newest] if self.door.newest >= 0 else 0.0


def made(job: FakeJob, node: int, boot: bytes, number: int, mono_ns: int) -> TraceBatch:
    """One node-second that ends now: small, healthy, and true by today's clocks."""
    comm = comm_rows(job, node)
    comm["joined_ns"] = 1
    tables = {
        "comm": comm,
        "op": op_rows(job, node, number, mono_ns),
        "live_op": live_op_rows(job, node, number, mono_ns),
        "progress": progress_rows(job, node, number, mono_ns),
        "process": process_rows(job, node, mono_ns),
        "nic": nic_rows(mono_ns, number),
    }
    return replace(job.batch(node), boot_id=boot, number=number, wall_ns=time.time_ns(), mono_ns=mono_ns, tables=tables)


class Load(threading.Thread):
    """`with Load(...) as load:` sends until the end of the block; the numbers can be read meanwhile."""

    def __init__(self, server: str, token_file: Path, folder: Path, n_nodes: int) -> None:
        super().__init__(name="load", daemon=True)
        self.job = FakeJob(name=JOB, ranks=n_nodes, nodes=n_nodes)
        self.nodes = [LoadNode(index, server, token_file, folder) for index in range(n_nodes)]
        self._stopping = threading.Event()

    def run(self) -> None:
        due = time.monotonic()
        while not self._stopping.is_set():
            for node in self.nodes:
                node.cut(self.job, time.monotonic_ns())
            due = max(due + 1.0, time.monotonic())
            self._stopping.wait(due - time.monotonic())

    def __enter__(self) -> Load:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.pause()
        for node in self.nodes:
            node.uplink.stop()
            node.spool.close()

    def pause(self) -> None:
        """Cut nothing more; what waits is still sent."""
        self._stopping.set()
        self.join()

    def n_acknowledged(self) -> int:
        return sum(len(node.door.acknowledged) for node in self.nodes)

    def n_spooled(self) -> int:
        return sum(len(node.spool) for node in self.nodes)

    def is_acknowledged_since(self, at: float) -> bool:
        """Whether a batch cut after `at` has been acknowledged of every node."""
        return all(node.newest_acknowledged_cut() >= at for node in self.nodes)
