"""The orchestrator: makes links and shared memory, starts one process per rank, watches them, obeys the control socket.

A job ends by itself (iterations or seconds), on request, or loudly: a rank that dies without having been killed on
purpose, or that saw a wrong number, ends the job with a non-zero code and its last words. An injected fault never ends
it: a hung job stays hung, as NCCL jobs do.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .control import SOCKET_PATH_BYTES_MAX, Answer, ControlServer
from .faults import FaultError, Faults
from .leftovers import Record, clear, start_guard, start_ticks_of
from .links import LinkError, Links
from .namespaces import NamespaceLinks
from .paced import PacedLinks
from .pages import ControlPage
from .ranks import Ranks
from .settings import JobSettings, may_make_namespaces, plugin_path
from .status import Status

EXIT_RANK_DIED = 3
EXIT_HUNG = 4
LOOK_S = 0.2
PROGRESS_S = 5.0
STOP_LEAD_ITERATIONS = 2
STOP_LIMIT_S = 3.0  # for the iterations under way
STOP_LIMIT_OF_FAULTY_S = 0.7  # a job under a fault is not waited for: most of them hang


class Job:
    def __init__(self, settings: JobSettings) -> None:
        self.settings = settings
        self.plugin = plugin_path(settings.plugin)
        self.record: Record | None = None
        self.ranks: Ranks | None = None
        self.control: ControlServer | None = None
        self.is_asked_to_stop = False
        self.stop_deadline: float | None = None

    def run(self) -> int:
        """Runs the job to its end and clears up; returns the exit code. Raises JobError or LinkError."""
        guard = start_guard(os.getpid())
        try:
            self._start()
            return self._watch()
        finally:
            self._end()
            os.close(guard)

    def _start(self) -> None:
        settings, layout = self.settings, self.settings.layout
        run_folder = settings.run_folder or Path(tempfile.mkdtemp(prefix="diogenes-testbed-run-"))
        run_folder.mkdir(parents=True, exist_ok=True)
        safe_name = re.sub(r"[^A-Za-z0-9_.-]", "_", settings.name)
        segments = settings.segment_root / f"diogenes-{safe_name}-{os.getpid()}"
        record = self.record = self._new_record(segments, run_folder)
        self.page = ControlPage(layout.n_ranks, len(layout.nics), settings.physics.link_bytes_per_s)
        self.page.set_job("stop_at", settings.iterations or self.page.read_job("stop_at"))
        self.links = self._make_links(run_folder / "sys")
        self.control = ControlServer(self._control_path(run_folder), self._answer)
        ranks = self.ranks = Ranks(settings, self.links, self.page, segments, run_folder, self.plugin)
        ranks.start()
        record.rank_pids = ranks.pids
        record.save()
        self.faults = Faults(layout, self.page, self.links, ranks.pids, run_folder / "truth.jsonl")
        self.status = Status(ranks, self.page, self.faults)
        ranks.write_manifest(self.control.path)

    def _new_record(self, segments: Path, run_folder: Path) -> Record:
        """Saved before anything it names exists, so that no moment is uncovered."""
        layout = self.settings.layout
        temporary = [] if self.settings.run_folder else [str(run_folder)]
        for name in ("manifest.json", "truth.jsonl"):  # of an earlier job in the same folder
            (run_folder / name).unlink(missing_ok=True)
        record = Record(
            pid=os.getpid(),
            start_ticks=start_ticks_of(os.getpid()) or 0,
            n_nodes=layout.n_nodes,
            n_nics_per_node=layout.n_nics_per_node,
            has_namespaces=self.settings.has_real_links,
            folders=[str(segments), str(run_folder / "sys"), *temporary],
            rank_pids=[],
        )
        record.save()
        return record

    def _make_links(self, sysfs_root: Path) -> Links:
        layout, rate = self.settings.layout, self.settings.physics.link_bytes_per_s
        shutil.rmtree(sysfs_root, ignore_errors=True)
        links: Links = PacedLinks(layout, self.page, rate, sysfs_root)
        if self.settings.has_real_links:
            if not may_make_namespaces():
                raise LinkError("Real links need root and the commands ip and tc (package iproute2).")
            links = NamespaceLinks(layout, os.getpid(), rate, sysfs_root)
        links.create()
        return links

    def _control_path(self, run_folder: Path) -> Path:
        path = run_folder / "control"
        if len(os.fsencode(path)) > SOCKET_PATH_BYTES_MAX and self.record is not None:
            path = Path(tempfile.mkdtemp(prefix="diogenes-testbed-run-")) / "control"
            self.record.folders.append(str(path.parent))
            self.record.save()
        path.unlink(missing_ok=True)
        return path

    def _watch(self) -> int:
        assert self.control is not None
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)
        say(self.status.opening_line())
        next_progress = time.monotonic() + PROGRESS_S
        while True:
            self.control.serve(LOOK_S)
            self.links.refresh()
            code = self._look()
            if code is not None:
                say(self.status.progress_line())
                return code
            if time.monotonic() >= next_progress:
                next_progress += PROGRESS_S
                say(self.status.progress_line())

    def _on_signal(self, number: int, frame: object) -> None:
        self.is_asked_to_stop = True

    def _look(self) -> int | None:
        """The exit code when the job is over, else None."""
        assert self.ranks is not None
        codes = [process.poll() for process in self.ranks.processes]
        for rank, code in enumerate(codes):
            if code not in (None, 0) and rank not in self.faults.killed_ranks():
                say(f"Rank {rank} ended with code {code}: {self.ranks.last_words(rank)}")
                return EXIT_RANK_DIED
        if all(code is not None for code in codes):
            return 0
        self._stop_when_due()
        if self.stop_deadline is not None and time.monotonic() > self.stop_deadline:
            return self._code_of_hung_end()
        return None

    def _stop_when_due(self) -> None:
        seconds = self.settings.seconds
        is_time_over = seconds > 0 and time.monotonic() - self.status.started > seconds
        if (self.is_asked_to_stop or is_time_over) and self.stop_deadline is None:
            self.page.set_job("stop_at", max(self.page.iterations()) + STOP_LEAD_ITERATIONS)
            self.stop_deadline = time.monotonic() + (STOP_LIMIT_OF_FAULTY_S if self.faults.active() else STOP_LIMIT_S)

    def _code_of_hung_end(self) -> int:
        if self.faults.found:
            say("The job had not ended its iteration when its time was over, as its faults make it.")
            return 0
        say("The job did not reach the end of its iteration and no fault was injected: that is a bug.")
        return EXIT_HUNG

    def _answer(self, request: dict[str, Any]) -> Answer:
        try:
            return {"ok": True, **self._do(request)}
        except (FaultError, LinkError, OSError, TypeError) as error:
            return {"ok": False, "error": str(error)}

    def _do(self, request: dict[str, Any]) -> Answer:
        match request.get("do"):
            case "status":
                return self.status.describe()
            case "inject":
                fault = self.faults.inject(request.get("fault", ""), request.get("rank"), request.get("amount"))
                return {"fault": asdict(fault)}
            case "heal":
                healed = self.faults.heal(request.get("fault", ""), request.get("rank"))
                return {"healed": [asdict(fault) for fault in healed]}
            case "stop":
                self.is_asked_to_stop = True
                return {}
        raise FaultError("A request does one of: inject, heal, status, stop.")

    def _end(self) -> None:
        """Segments are removed only now, after every rank is gone: agents may still be draining until then."""
        if self.ranks is not None:
            self.ranks.kill_all()
        if self.control is not None:
            self.control.close()
        if self.record is not None:
            clear(self.record)


def say(line: str) -> None:
    """A reader who went away must not end the job."""
    with contextlib.suppress(OSError):
        print(f"testbed: {line}", flush=True)
