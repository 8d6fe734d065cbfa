"""The two jobs the overhead benchmark measures: a training job timed step by step, and a bandwidth sweep.

The rank processes are the testbed's; only its orchestrator is left out, because nothing is injected here and nothing but
the measured job should run. Each job loads an empty plugin and ours and is told which of them to call, so that variants
are compared within the same processes, connections and seconds; an agent that is not to be measured is stopped meanwhile.
Ranks run in the ordinary scheduling class, or the agent could not disturb them at all.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from nccl_instrument.testbed.layout import Layout
from nccl_instrument.testbed.paced import PacedLinks
from nccl_instrument.testbed.pages import ControlPage
from nccl_instrument.testbed.physics import Physics
from nccl_instrument.testbed.ranks import Ranks
from nccl_instrument.testbed.settings import JobSettings

VARIANTS = ("empty", "plugin", "agent")
LIMIT_S, POLL_S, AGENT_AWAKE_S = 120.0, 0.05, 0.5
DISCARDED = 6  # iterations after each switch: a second in which an agent that was stopped catches up
STEP_LAYOUT, SWEEP_LAYOUT = Layout(tp=2, pp=2, dp=2), Layout(tp=1, pp=2, dp=1, ranks_per_node=1)
UNLIMITED = Physics(link_mbit=10_000, copy_to_link_ratio=1000)


class OpenLinks(PacedLinks):
    """Plain loopback: nothing paces, the machine is the limit."""

    is_paced = False


class Stretch(NamedTuple):
    """Some steps of one variant."""

    step_ms: list[float]
    seconds: float
    rank_cpu_s: float
    agent_cpu_s: float
    sent_bytes: int


class Series(NamedTuple):
    """A collective at one size."""

    name: str
    size_bytes: int
    seconds_per_op: float


class SweepSizes(NamedTuple):
    """A series has at most `series_ops` ops, and no more than move `series_bytes`."""

    bytes_max: int
    series_bytes: int
    series_ops: int

    def lines(self) -> str:
        own = "".join(f"sweep_{name} {value}\n" for name, value in self._asdict().items())
        return own + f"world_bytes {self.bytes_max}\npp_bytes {self.bytes_max}\n"


class Sink:
    """An ingest that takes everything, counts its bytes and keeps nothing."""

    def __init__(self) -> None:
        self.n_bytes = 0
        sink = self

        class Door(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                sink.n_bytes += len(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Door)
        self._http.daemon_threads = True
        threading.Thread(target=self._http.serve_forever, args=(0.1,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self._http.server_port}"

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


class Agent:
    """The one agent of a node of eight: it reads the segment folders of all the testbed's nodes."""

    def __init__(self, folder: Path, ranks: Ranks, links: PacedLinks) -> None:
        self._sink = Sink()
        (folder / "token").write_text("bench")
        words = [sys.executable, "-m", "nccl_instrument.agent", "--server", self._sink.url, "--node", "bench"]
        words += ["--token-file", str(folder / "token"), "--spool", str(folder / "spool")]
        for node in range(ranks.layout.n_nodes):
            words += ["--segments", str(ranks.segment_folder(node))]
        for number, nic in enumerate(ranks.layout.nics):
            words += ["--nic", f"nic{number}={links.sysfs_of(nic)}"]
        with (folder / "agent.log").open("wb") as log:
            self._process = subprocess.Popen(words, stderr=log)

    @property
    def sent_bytes(self) -> int:
        return self._sink.n_bytes

    @property
    def mb(self) -> float:
        return memory_mb(self._process.pid, "VmHWM")

    def cpu_s(self) -> float:
        return cpu_s(self._process.pid)

    def set_running(self, is_running: bool) -> None:
        self._process.send_signal(signal.SIGCONT if is_running else signal.SIGSTOP)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._sink.close()


class BenchRanks(Ranks):
    """Ranks whose job file has further lines."""

    lines = ""

    def _job_file(self) -> str:
        return super()._job_file() + self.lines


class LiveJob:
    """A job of the testbed that calls the first plugin of `plugins`, or the second; everything is gone at the end."""

    def __init__(
        self, plugins: str, layout: Layout, physics: Physics, links: type[PacedLinks], lines: str = ""
    ) -> None:
        os.environ["DIOGENES_TESTBED_REALTIME"] = "0"
        self._folder = tempfile.TemporaryDirectory(prefix="diogenes-bench-", dir="/dev/shm")
        folder = Path(self._folder.name)
        self.page = ControlPage(layout.n_ranks, len(layout.nics), physics.link_bytes_per_s)
        self._links = links(layout, self.page, physics.link_bytes_per_s, folder / "sys")
        self._links.create()
        settings = JobSettings(layout, physics, "overhead", profiler_version="7")
        self.ranks = BenchRanks(settings, self._links, self.page, folder / "segments", folder, plugins)
        self.ranks.lines = lines
        self.ranks.start()
        self.agent = Agent(folder, self.ranks, self._links)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.ranks.kill_all()
        self.agent.end()
        self.page.close()
        self._folder.cleanup()

    def choose(self, variant: str) -> None:
        self.page.set_job("profiler", int(variant != "empty"))
        self.agent.set_running(variant == "agent")

    def wait(self, is_so: Callable[[], bool]) -> None:
        """Until `is_so`. Raises RuntimeError with a rank's last words when the job does not get there."""
        deadline = time.monotonic() + LIMIT_S
        while not is_so():
            time.sleep(POLL_S)
            self._links.refresh()
            if time.monotonic() > deadline or any(process.poll() is not None for process in self.ranks.processes):
                raise RuntimeError(f"the job does not go on: {self.ranks.last_words(0)}")

    def reach(self, iteration: int) -> None:
        self.wait(lambda: min(self.page.iterations()) >= iteration)


class StepJob(LiveJob):
    """The default training job on paced links."""

    def __init__(self, plugins: str) -> None:
        super().__init__(plugins, STEP_LAYOUT, Physics(), PacedLinks)

    def wait_for_agent(self) -> None:
        """Until the agent has found the ranks and sends."""
        self.choose("agent")
        self.wait(lambda: self.agent.sent_bytes > 0)

    def stretch(self, variant: str, n_iterations: int) -> Stretch:
        """The next `n_iterations` of `variant`, once those in which the job switches to it are over."""
        self.choose(variant)
        first = max(self.page.iterations()) + DISCARDED
        self.reach(first)
        before, began = self._spent(), time.monotonic()
        self.reach(first + n_iterations)
        after, seconds = self._spent(), time.monotonic() - began
        recent = self.page.recent_iterations_ms(0)
        start = first - (self.page.read_rank(0, "iteration") - len(recent))
        spent = [end - start for start, end in zip(before, after, strict=True)]
        return Stretch(recent[start : start + n_iterations], seconds, spent[0], spent[1], int(spent[2]))

    def rank_mb(self) -> float:
        return sum(memory_mb(pid, "VmHWM") for pid in self.ranks.pids)

    def _spent(self) -> tuple[float, float, int]:
        return sum(cpu_s(pid) for pid in self.ranks.pids), self.agent.cpu_s(), self.agent.sent_bytes


class SweepJob(LiveJob):
    """Every collective and size between two ranks over loopback, pass by pass. The first pass warms up."""

    def __init__(self, plugins: str, sizes: SweepSizes) -> None:
        super().__init__(plugins, SWEEP_LAYOUT, UNLIMITED, OpenLinks, sizes.lines())
        self._variants: list[str] = []

    def __enter__(self) -> Self:
        try:
            self.run_pass("agent")
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def run_pass(self, variant: str) -> float:
        """Seconds it took."""
        self.choose(variant)
        time.sleep(AGENT_AWAKE_S)
        self._variants.append(variant)
        began = time.monotonic()
        self.page.set_job("n_passes", len(self._variants))
        self.reach(len(self._variants))
        return time.monotonic() - began

    def series(self) -> dict[str, list[list[Series]]]:
        """What each variant's passes took, one list per pass, without the first pass of all."""
        found: dict[int, list[Series]] = {}
        for line in self.ranks.log_path(0).read_text().splitlines():
            if line.startswith("sweep "):
                number, name, size, n_ops, ns = line.split()[1:]
                found.setdefault(int(number), []).append(Series(name, int(size), int(ns) / int(n_ops) / 1e9))
        numbers = range(1, len(self._variants))
        return {name: [found[at] for at in numbers if self._variants[at] == name] for name in VARIANTS}


def cpu_s(pid: int) -> float:
    """CPU time of all its threads that live, to the nanosecond (/proc/<pid>/stat counts whole ticks)."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def memory_mb(pid: int, what: str) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(what + ":")) / 1024
