"""What a testbed job is asked to be, and what the machine allows."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from .layout import Layout
from .physics import Physics

HERE = Path(__file__).resolve().parent
ENGINE = HERE / "build" / "dgrank"
PLUGIN = HERE.parent / "plugin" / "build" / "libnccl-profiler-diogenes.so"


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

    @property
    def has_real_links(self) -> bool:
        return self.links == "real" or (self.links == "auto" and may_make_namespaces())


def may_make_namespaces() -> bool:
    return os.geteuid() == 0 and shutil.which("ip") is not None and shutil.which("tc") is not None


def plugin_path(setting: str) -> str | None:
    """The plugin the ranks load. Raises JobError when one was named and is not there."""
    if setting == "none":
        return None
    chosen = Path(setting or os.environ.get("NCCL_PROFILER_PLUGIN", "") or PLUGIN)
    if chosen.exists():
        return str(chosen.resolve())
    if setting:
        raise JobError(f"There is no profiler plugin at {chosen}: build it with make -C nccl_instrument/plugin.")
    return None
