"""The orchestrator: makes links and shared memory, starts one process per rank, watches them, obeys the control socket.

A job ends by itself (iterations or seconds), on request, or loudly: a rank that dies without having been killed on
purpose, or that saw a wrong number, ends the job with a non-zero code and its last words. An injected fault never ends
it: a hung job stays hung, as NCCL jobs do.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .control import SOCKET_PATH_BYTES_MAX, Answer, ControlServer
from .faults import FaultError, Faults
from .layout import Layout
from .leftovers import Record, clear, start_guard, start_ticks_of
from .links import LinkError, Links
from .namespaces import NamespaceLinks
from .paced import PacedLinks
from .pages import STATES, ControlPage
from .physics import Physics, job_file

HERE = Path(__file__).resolve().parent
ENGINE = HERE / "build" / "dgrank"
PLUGIN = HERE.parent / "plugin" / "build" / "libnccl-profiler-diogenes.so"
EXIT_RANK_DIED = 3
EXIT_HUNG = 4
LOOK_S = 0.2
PROGRESS_S = 5.0
STOP_LEAD_ITERATIONS = 2
STOP_LIMIT_S = 5.0


class JobError(RuntimeError):
    """The job cannot start or has failed; the message is one sentence."""


@dataclass(frozen=True)
class JobSettings:
    layout: Layout
    physics: Physics
    name: str = "demo"
    transport: str = "IB"
    seed: int = 1
    iterations: int = 0  # 0: until told to stop
    seconds: float = 0.0
    restart_count: int = 0
    plugin: str = ""  # "": the built one if there is one; "none": no tracing
    profiler_version: str = ""
    run_folder: Path | None = None
    links: str = "auto"  # auto, real, paced
    segment_root: Path = Path("/dev/shm")
    engine: Path = ENGINE


def may_make_namespaces() -> bool:
    return os.geteuid() == 0 and shutil.which("ip") is not None and shutil.which("tc") is not None


def plugin_path(setting: str) -> str | None:
    if setting == "none":
        return None
    chosen = Path(setting or os.environ.get("NCCL_PROFILER_PLUGIN", "") or PLUGIN)
    if chosen.exists():
        return str(chosen.resolve())
    if setting:
        raise JobError(f"There is no profiler plugin at {chosen}: build it with make -C nccl_instrument/plugin.")
    return None


@dataclass
class Job:
    settings: JobSettings
    ranks: list[subprocess.Popen[bytes]] = field(default_factory=list)
    started: float = 0.0

    def run(self) -> int:
        """Runs the job to its end and clears up; returns the exit code. Raises JobError or LinkError."""
        guard = start_guard(os.getpid())
        try:
            self._prepare()
            self._start_ranks()
            return self._watch()
        finally:
            self._end()
            os.close(guard)

    # -- start ---------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        settings, layout = self.settings, self.settings.layout
        safe_name = re.sub(r"[^A-Za-z0-9_.-]", "_", settings.name)
        self.segments = settings.segment_root / f"diogenes-{safe_name}-{os.getpid()}"
        self.run_folder = settings.run_folder or Path(tempfile.mkdtemp(prefix="diogenes-testbed-run-"))
        self.run_folder.mkdir(parents=True, exist_ok=True)
        temporary = [] if settings.run_folder else [str(self.run_folder)]
        is_real = settings.links == "real" or (settings.links == "auto" and may_make_namespaces())
        self.record = Record(
            pid=os.getpid(),
            start_ticks=start_ticks_of(os.getpid()) or 0,
            n_nodes=layout.n_nodes,
            n_nics_per_node=layout.n_nics_per_node,
            has_namespaces=is_real,
            folders=[str(self.segments), str(self.run_folder / "sys"), *temporary],
            rank_pids=[],
        )
        self.record.save()
        self.page = ControlPage(layout.n_ranks, len(layout.nics), settings.physics.link_bytes_per_s)
        self.links = self._make_links(is_real)
        for node in range(layout.n_nodes):
            self._segment_folder(node).mkdir(parents=True)
        self._open_control()

    def _make_links(self, is_real: bool) -> Links:
        layout, rate = self.settings.layout, self.settings.physics.link_bytes_per_s
        sysfs_root = self.run_folder / "sys"
        shutil.rmtree(sysfs_root, ignore_errors=True)
        links: Links
        if is_real:
            if not may_make_namespaces():
                raise LinkError("Real links need root and the commands ip and tc (package iproute2).")
            links = NamespaceLinks(layout, os.getpid(), rate, sysfs_root)
        else:
            links = PacedLinks(layout, self.page, rate, sysfs_root)
        links.create()
        return links

    def _open_control(self) -> None:
        path = self.run_folder / "control"
        if len(os.fsencode(path)) > SOCKET_PATH_BYTES_MAX:
            folder = tempfile.mkdtemp(prefix="diogenes-testbed-run-")
            self.record.folders.append(folder)
            self.record.save()
            path = Path(folder) / "control"
        path.unlink(missing_ok=True)
        self.control = ControlServer(path, self._answer)

    def _segment_folder(self, node: int) -> Path:
        return self.segments / f"node{node}"

    def _start_ranks(self) -> None:
        settings, layout = self.settings, self.settings.layout
        places = [(self.links.address_of(nic), self.links.device_of(nic)) for nic in map(layout.nic_of, self._all())]
        conf = self.run_folder / "job.conf"
        conf.write_text(
            job_file(
                settings.name, settings.seed, settings.transport, layout, settings.physics, places, self.links.is_paced
            )
        )
        if settings.iterations:
            self.page.set_job("stop_at", settings.iterations)
        plugin = plugin_path(settings.plugin)
        exchange = os.memfd_create("diogenes-testbed-exchange")
        for rank in self._all():
            self.ranks.append(self._start_rank(rank, conf, exchange, plugin))
        os.close(exchange)
        self.record.rank_pids = [process.pid for process in self.ranks]
        self.record.save()
        truth = self.run_folder / "truth.jsonl"
        truth.unlink(missing_ok=True)
        self.faults = Faults(layout, self.page, self.links, self.record.rank_pids, truth)
        self._write_manifest(plugin)
        self.started = time.monotonic()

    def _all(self) -> range:
        return range(self.settings.layout.n_ranks)

    def _start_rank(self, rank: int, conf: Path, exchange: int, plugin: str | None) -> subprocess.Popen[bytes]:
        words = [str(self.settings.engine), str(conf), str(rank), str(self.page.fd), str(exchange)]
        namespace = self.links.namespace_file(self.settings.layout.node_of(rank))
        words += [namespace] if namespace else []
        with (self.run_folder / f"rank{rank}.log").open("wb") as log:
            return subprocess.Popen(
                words,
                env=self._environment(rank, plugin),
                pass_fds=(self.page.fd, exchange),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is the orchestrator's to handle
            )

    def _environment(self, rank: int, plugin: str | None) -> dict[str, str]:
        settings, layout = self.settings, self.settings.layout
        tp, pp, dp = layout.coordinates_of(rank)
        node = layout.node_of(rank)
        environment = dict(os.environ)
        environment.pop("NCCL_PROFILER_PLUGIN", None)
        environment |= {
            "RANK": str(rank),
            "WORLD_SIZE": str(layout.n_ranks),
            "LOCAL_RANK": str(layout.local_rank_of(rank)),
            "LOCAL_WORLD_SIZE": str(layout.ranks_per_node),
            "TORCHELASTIC_RESTART_COUNT": str(settings.restart_count),
            "DIOGENES_JOB": settings.name,
            "DIOGENES_TP_RANK": str(tp),
            "DIOGENES_PP_RANK": str(pp),
            "DIOGENES_DP_RANK": str(dp),
            "NCCL_NET": settings.transport,
            "NCCL_IB_HCA": layout.nic_of(rank).name,
            "NCCL_HOSTID": f"node{node}",
            "DIOGENES_GPU_BUS_ID": self._gpu_bus_id(rank),
            "DIOGENES_GPU_UUID": f"GPU-00000000-0000-0000-{node:04x}-{rank:012x}",
            "DIOGENES_SEGMENT_DIR": str(self._segment_folder(node)),
            "DIOGENES_TESTBED_PID": str(os.getpid()),
            "DIOGENES_TESTBED_PROFILER_VERSION": settings.profiler_version,
        }
        return environment | ({"NCCL_PROFILER_PLUGIN": plugin} if plugin else {})

    def _gpu_bus_id(self, rank: int) -> str:
        return f"0000:{0x10 + 8 * self.settings.layout.local_rank_of(rank):02x}:00.0"

    def _write_manifest(self, plugin: str | None) -> None:
        settings, layout = self.settings, self.settings.layout
        manifest = {
            "job": settings.name,
            "pid": os.getpid(),
            "control": str(self.control.path),
            "plugin": plugin,
            "links": "paced" if self.links.is_paced else "namespaces",
            "transport": settings.transport,
            "seed": settings.seed,
            "restart_count": settings.restart_count,
            "layout": asdict(layout) | {"n_ranks": layout.n_ranks, "n_nodes": layout.n_nodes},
            "physics": asdict(settings.physics),
            "communicators": [
                {"kind": c.kind, "name": c.name, "hash": c.hash_in(settings.name, settings.seed), "ranks": c.members}
                for c in layout.communicators
            ],
            "nodes": [self._describe_node(node) for node in range(layout.n_nodes)],
        }
        fresh = self.run_folder / "manifest.json.new"
        fresh.write_text(json.dumps(manifest, indent=1))
        fresh.rename(self.run_folder / "manifest.json")

    def _describe_node(self, node: int) -> dict[str, Any]:
        layout = self.settings.layout
        return {
            "name": f"node{node}",
            "segment_dir": str(self._segment_folder(node)),
            "nics": [
                {"name": nic.name, "sysfs": str(self.links.sysfs_of(nic))} for nic in layout.nics if nic.node == node
            ],
            "ranks": [
                {
                    "rank": rank,
                    "pid": self.ranks[rank].pid,
                    "gpu": self._gpu_bus_id(rank),
                    "nic": layout.nic_of(rank).name,
                }
                for rank in self._all()
                if layout.node_of(rank) == node
            ],
        }

    # -- watch ---------------------------------------------------------------------------------------------------

    def _watch(self) -> int:
        self.is_asked_to_stop = False
        self.stop_deadline: float | None = None
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)
        say(self._opening_line())
        next_progress = time.monotonic() + PROGRESS_S
        while True:
            self.control.serve(LOOK_S)
            self.links.refresh()
            code = self._look()
            if code is not None:
                say(self._progress_line())
                return code
            if time.monotonic() >= next_progress:
                next_progress += PROGRESS_S
                say(self._progress_line())

    def _on_signal(self, number: int, frame: object) -> None:
        self.is_asked_to_stop = True

    def _look(self) -> int | None:
        """The exit code when the job is over, else None."""
        codes = [process.poll() for process in self.ranks]
        died = [r for r, code in enumerate(codes) if code not in (None, 0) and r not in self.faults.killed_ranks()]
        if died:
            self._report_death(died[0], codes[died[0]])
            return EXIT_RANK_DIED
        if all(code is not None for code in codes):
            return 0
        is_time_over = self.settings.seconds and time.monotonic() - self.started > self.settings.seconds
        if (self.is_asked_to_stop or is_time_over) and self.stop_deadline is None:
            self.page.set_job("stop_at", max(self.page.iterations()) + STOP_LEAD_ITERATIONS)
            self.stop_deadline = time.monotonic() + STOP_LIMIT_S
        if self.stop_deadline is not None and time.monotonic() > self.stop_deadline:
            return self._code_of_hung_end()
        return None

    def _code_of_hung_end(self) -> int:
        if self.faults.found:
            say("The job was still hung when its time was over, as its faults make it.")
            return 0
        say("The job did not reach the end of its iteration and no fault was injected: that is a bug.")
        return EXIT_HUNG

    def _report_death(self, rank: int, code: int | None) -> None:
        words = (self.run_folder / f"rank{rank}.log").read_text(errors="replace").strip().splitlines()
        say(f"Rank {rank} ended with code {code}: {words[-1] if words else 'it said nothing'}")

    def _opening_line(self) -> str:
        layout, links = self.settings.layout, "paced sockets" if self.links.is_paced else "namespaces and tbf"
        return (
            f"Job {self.settings.name}: {layout.n_ranks} ranks on {layout.n_nodes} nodes "
            f"(tp {layout.tp}, pp {layout.pp}, dp {layout.dp}), {self.settings.transport} over {links}, "
            f"run folder {self.run_folder}"
        )

    def _progress_line(self) -> str:
        status = self.status()
        active = ", ".join(f"{f['fault']} on rank {f['rank']}" for f in status["faults"] if f["healed_at"] is None)
        timing = status["iteration_ms"]
        return (
            f"iteration {status['iteration']}, {timing['median']:.1f} ms ± {timing['mad']:.2f} (MAD), "
            f"{status['cpu_cores']:.2f} cores" + (f", faults: {active}" if active else "")
        )

    def status(self) -> dict[str, Any]:
        """What is known of the job now: ranks, iterations, timing, faults, processor use."""
        states = [self._describe_rank(rank) for rank in self._all()]
        return {
            "job": self.settings.name,
            "uptime_s": time.monotonic() - self.started,
            "iteration": min(state["iteration"] for state in states),
            "iteration_ms": spread(self.page.recent_iterations_ms(0)),
            "cpu_cores": self._cpu_seconds() / max(1e-9, time.monotonic() - self.started),
            "ranks": states,
            "faults": [asdict(fault) for fault in self.faults.found],
        }

    def _describe_rank(self, rank: int) -> dict[str, Any]:
        fields = ("iteration", "n_ops_enqueued", "n_ops_done", "n_elements_checked")
        return {
            "rank": rank,
            "node": f"node{self.settings.layout.node_of(rank)}",
            "pid": self.ranks[rank].pid,
            "is_alive": self.ranks[rank].poll() is None,
            "state": STATES[self.page.read_rank(rank, "state")],
        } | {name: self.page.read_rank(rank, name) for name in fields}

    def _cpu_seconds(self) -> float:
        ticks = 0
        for process in self.ranks:
            try:
                fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def _answer(self, request: dict[str, Any]) -> Answer:
        what = request.get("do")
        try:
            if what == "status":
                return {"ok": True, **self.status()}
            if what == "inject":
                fault = self.faults.inject(request.get("fault", ""), request.get("rank"), request.get("amount"))
                return {"ok": True, "fault": asdict(fault)}
            if what == "heal":
                healed = self.faults.heal(request.get("fault", ""), request.get("rank"))
                return {"ok": True, "healed": [asdict(fault) for fault in healed]}
            if what == "stop":
                self.is_asked_to_stop = True
                return {"ok": True}
        except (FaultError, LinkError, OSError, TypeError) as error:
            return {"ok": False, "error": str(error)}
        return {"ok": False, "error": "A request does one of: inject, heal, status, stop."}

    # -- end -----------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        """SIGKILL reaches frozen ranks too; segments are removed only now, after every rank is gone."""
        for process in self.ranks:
            if process.poll() is None:
                process.kill()
        for process in self.ranks:
            process.wait()
        if hasattr(self, "control"):
            self.control.close()
        if hasattr(self, "record"):
            clear(self.record)


def spread(values: list[float]) -> dict[str, float]:
    """Median and median absolute deviation; zeros when there is nothing yet."""
    if not values:
        return {"median": 0.0, "mad": 0.0, "n": 0}
    middle = statistics.median(values)
    return {"median": middle, "mad": statistics.median(abs(v - middle) for v in values), "n": len(values)}


def say(line: str) -> None:
    print(f"testbed: {line}", flush=True)
