"""Starts the rank processes with a launcher's environment, and describes them in the manifest.

The environment is the one torchrun and Megatron users have, plus DIOGENES_ names for what no launcher tells. Agents
learn pids, NIC folders and segment folders from the manifest alone.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nccl_instrument.stage_schema import DEFAULT

from .links import Links
from .pages import ControlPage
from .physics import job_file
from .settings import JobSettings


class Ranks:
    def __init__(
        self,
        settings: JobSettings,
        links: Links,
        page: ControlPage,
        segments: Path,
        run_folder: Path,
        plugin: str | None,
    ) -> None:
        self.settings = settings
        self.layout = settings.layout
        self.links = links
        self.page = page
        self.segments = segments
        self.run_folder = run_folder
        self.plugin = plugin
        self.processes: list[subprocess.Popen[bytes]] = []

    @property
    def numbers(self) -> range:
        return range(self.layout.n_ranks)

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self.processes]

    def segment_folder(self, node: int) -> Path:
        return self.segments / f"node{node}"

    def start(self) -> None:
        """Starts all ranks; they find each other by themselves."""
        for node in range(self.layout.n_nodes):
            self.segment_folder(node).mkdir(parents=True)
        conf = self.run_folder / "job.conf"
        conf.write_text(self._job_file())
        exchange = os.memfd_create("diogenes-testbed-exchange")
        for rank in self.numbers:
            self.processes.append(self._start_rank(rank, conf, exchange))
        os.close(exchange)

    def _job_file(self) -> str:
        s, nics = self.settings, [self.layout.nic_of(rank) for rank in self.numbers]
        places = [(self.links.address_of(nic), self.links.device_of(nic)) for nic in nics]
        return job_file(s.name, s.seed, s.transport, s.layout, s.physics, places, self.links.is_paced)

    def _start_rank(self, rank: int, conf: Path, exchange: int) -> subprocess.Popen[bytes]:
        words = [str(self.settings.engine), str(conf), str(rank), str(self.page.fd), str(exchange)]
        namespace = self.links.namespace_file(self.layout.node_of(rank))
        words += [namespace] if namespace else []
        with self.log_path(rank).open("wb") as log:
            return subprocess.Popen(
                words,
                env=self._environment(rank),
                pass_fds=(self.page.fd, exchange),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is the orchestrator's to handle
            )

    def log_path(self, rank: int) -> Path:
        return self.run_folder / f"rank{rank}.log"

    def last_words(self, rank: int) -> str:
        lines = self.log_path(rank).read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def _environment(self, rank: int) -> dict[str, str]:
        settings, layout = self.settings, self.layout
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
            "DIOGENES_SEGMENT_DIR": str(self.segment_folder(node)),
            "DIOGENES_TESTBED_PID": str(os.getpid()),
            "DIOGENES_TESTBED_PROFILER_VERSION": settings.profiler_version,
            "DIOGENES_TESTBED_STAGES": str(DEFAULT.schema_id),
        }
        return environment | ({"NCCL_PROFILER_PLUGIN": self.plugin} if self.plugin else {})

    def _gpu_bus_id(self, rank: int) -> str:
        return f"0000:{0x10 + 8 * self.layout.local_rank_of(rank):02x}:00.0"

    def write_manifest(self, control: Path) -> None:
        """Written when everything it names exists: its appearance means that the job runs."""
        s, layout = self.settings, self.layout
        manifest = {
            "job": s.name,
            "pid": os.getpid(),
            "control": str(control),
            "plugin": self.plugin,
            "links": "paced" if self.links.is_paced else "namespaces",
            "transport": s.transport,
            "seed": s.seed,
            "restart_count": s.restart_count,
            "layout": asdict(layout) | {"n_ranks": layout.n_ranks, "n_nodes": layout.n_nodes},
            "physics": asdict(s.physics),
            "communicators": [
                {"kind": c.kind, "name": c.name, "hash": c.hash_in(s.name, s.seed), "ranks": c.members}
                for c in layout.communicators
            ],
            "nodes": [self._describe_node(node) for node in range(layout.n_nodes)],
        }
        fresh = self.run_folder / "manifest.json.new"
        fresh.write_text(json.dumps(manifest, indent=1))
        fresh.rename(self.run_folder / "manifest.json")

    def _describe_node(self, node: int) -> dict[str, Any]:
        nics = [nic for nic in self.layout.nics if nic.node == node]
        return {
            "name": f"node{node}",
            "segment_dir": str(self.segment_folder(node)),
            "nics": [{"name": nic.name, "sysfs": str(self.links.sysfs_of(nic))} for nic in nics],
            "ranks": [self._describe_rank(rank) for rank in self.numbers if self.layout.node_of(rank) == node],
        }

    def _describe_rank(self, rank: int) -> dict[str, Any]:
        nic = self.layout.nic_of(rank)
        return {"rank": rank, "pid": self.pids[rank], "gpu": self._gpu_bus_id(rank), "nic": nic.name}

    def kill_all(self) -> None:
        """SIGKILL reaches frozen ranks too."""
        for process in self.processes:
            if process.poll() is None:
                process.kill()
        for process in self.processes:
            process.wait()
