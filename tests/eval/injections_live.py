"""The paper's seven faults on the live testbed: what the testbed injects itself, and three that are made of its parts.

Background computation slows every rank of a node; background traffic is real datagrams between the namespaces of two
nodes; NCCL's delay is a proxy that sleeps a second again and again. Each yields the ranks to be blamed, and ends with its
block.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from console.supervisor.demo import LiveJob
from nccl_instrument.testbed.control import ask
from nccl_instrument.testbed.layout import Layout, Nic
from nccl_instrument.testbed.namespaces import SUBNET, namespace_name

Inject = Callable[[LiveJob, int, random.Random], Any]
SLEEP_SECONDS: Final = 1.0
BETWEEN_SLEEPS_SECONDS: Final = 4.0
TRAFFIC: Final = Path(__file__).with_name("injections_traffic.py")


class Refused(RuntimeError):
    """The testbed does not do this here; the message says why."""


def inject(job: LiveJob, fault: str, rank: int, amount: float | None = None) -> list[int]:
    """The ranks that the testbed says are hit."""
    request = {"do": "inject", "fault": fault, "rank": rank}
    answer = ask(job.rundir, request if amount is None else {**request, "amount": amount})
    if not answer.get("ok"):
        raise Refused(f"the testbed refused {fault}: {answer.get('error')}")
    return list(answer["fault"]["ranks"])


def _plain(fault: str, low: float = 0.0, high: float = 0.0) -> Inject:
    @contextmanager
    def injected(job: LiveJob, rank: int, draw: random.Random) -> Iterator[tuple[list[int], float]]:
        amount = draw.uniform(low, high)
        yield inject(job, fault, rank, amount if high else None), amount

    return injected


@contextmanager
def _background_compute(job: LiveJob, rank: int, draw: random.Random) -> Iterator[tuple[list[int], float]]:
    share, mates = draw.uniform(0.5, 0.9), _node_mates(job, rank)
    for mate in mates:
        inject(job, "slow_compute", mate, 1 / (1 - share))
    yield mates, share


@contextmanager
def _background_traffic(job: LiveJob, rank: int, draw: random.Random) -> Iterator[tuple[list[int], float]]:
    """Datagrams both ways between the NICs of two ranks of one data-parallel group, on different nodes."""
    manifest, share = job.manifest(), draw.uniform(0.5, 0.8)
    if manifest["links"] != "namespaces":
        raise Refused("background traffic needs real links, which need root")
    peer = _partner(job, rank)
    bytes_per_s = share * float(manifest["physics"]["link_mbit"]) * 1e6 / 8
    senders = [_send(job, one, other, bytes_per_s) for one, other in ((rank, peer), (peer, rank))]
    try:
        yield sorted((rank, peer)), share
    finally:
        for sender in senders:
            sender.terminate()
            sender.wait(5)


def _send(job: LiveJob, rank: int, peer: int, bytes_per_s: float) -> subprocess.Popen[bytes]:
    manifest, layout = job.manifest(), layout_of(job)
    nic, other = layout.nic_of(rank), layout.nic_of(peer)
    namespace = namespace_name(manifest["pid"], layout.node_of(rank))
    told = (nic.name, _address(nic), _address(other), str(int(bytes_per_s)))
    return subprocess.Popen(["ip", "netns", "exec", namespace, sys.executable, str(TRAFFIC), *told])


def _address(nic: Nic) -> str:
    return f"{SUBNET}.{nic.node}.{10 + int(nic.name.removeprefix('nic'))}"


def layout_of(job: LiveJob) -> Layout:
    """Who sits where in the running job."""
    sizes = job.manifest()["layout"]
    return Layout(**{name: sizes[name] for name in ("tp", "pp", "dp", "ranks_per_node", "nics_per_node")})


@contextmanager
def _nccl_delay(job: LiveJob, rank: int, draw: random.Random) -> Iterator[tuple[list[int], float]]:
    over = threading.Event()
    ranks = inject(job, "proxy_sleep", rank, SLEEP_SECONDS)
    sleeper = threading.Thread(target=_sleep_on, args=(job, rank, random.Random(draw.random()), over), daemon=True)
    sleeper.start()
    try:
        yield ranks, SLEEP_SECONDS
    finally:
        over.set()
        sleeper.join(10)


def _sleep_on(job: LiveJob, rank: int, draw: random.Random, over: threading.Event) -> None:
    while not over.wait(SLEEP_SECONDS + draw.expovariate(1 / BETWEEN_SLEEPS_SECONDS)):
        inject(job, "proxy_sleep", rank, SLEEP_SECONDS)


def _node_mates(job: LiveJob, rank: int) -> list[int]:
    layout = layout_of(job)
    return [one for one in range(layout.n_ranks) if layout.node_of(one) == layout.node_of(rank)]


def _partner(job: LiveJob, rank: int) -> int:
    """Another member of the rank's data-parallel group, on another node."""
    groups = [one["ranks"] for one in job.manifest()["communicators"] if one["kind"] == "dp" and rank in one["ranks"]]
    layout = layout_of(job)
    return next(one for one in groups[0] if layout.node_of(one) != layout.node_of(rank))


INJECTIONS: Final[dict[str, Inject]] = {
    "nic_down": _plain("nic_down"),
    "nic_limit": _plain("nic_limit", 0.1, 0.5),
    "slow_copies": _plain("slow_copies", 1.5, 5.0),
    "slow_compute": _plain("slow_compute", 1.5, 5.0),
    "background_compute": _background_compute,
    "background_traffic": _background_traffic,
    "proxy_sleep": _nccl_delay,
}
"""The paper's #1 to #7 (§7.1), severities from the evaluation's fault table: a block, within which the fault lasts."""
