"""The shim, an NCCL without hardware behind it, and a job that calls it: linked with it, or opened for itself alone."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

SHIM = Path(__file__).parents[3] / "nccl_instrument" / "nccl_api"
HERE = Path(__file__).parent
NAME = "libdiogenes-nccl-api.so"


@dataclass(frozen=True, slots=True)
class Built:
    """shim: what is loaded before the job. folder: of the library behind, the linked job, the module and its opener."""

    shim: Path
    folder: Path
    before: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)

    def run(
        self, scenario: str, into: Path, *, as_module: bool = False, with_shim: bool = True, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        job = [self.folder / "main", self.folder / "module.so"] if as_module else [self.folder / "caller"]
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("NCCL_", "DIOGENES_"))}
        loaded = {"LD_PRELOAD": ":".join([*self.before, str(self.shim)])} if with_shim else {}
        wanted = {"LD_LIBRARY_PATH": str(self.folder), "DIOGENES_SEGMENT_DIR": str(into), "RANK": "1", **loaded}
        return subprocess.run(
            [*job, scenario], env={**kept, **wanted, **self.environment, **environment}, capture_output=True, text=True,
            check=False, timeout=300,
        )  # fmt: skip


def build(folder: Path, target: str = "", flags: tuple[str, ...] = ()) -> tuple[Path, Path]:
    """(shim, folder of the rest)."""
    subprocess.run(["make", "-s", "-C", SHIM, *([target] if target else [])], check=True)
    words = ["gcc", "-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", *flags]
    shared = ["-shared", "-fPIC"]
    # Symbols of its own are looked up like anybody's, as in NCCL: the shim may come between.
    subprocess.run(
        [*words, *shared, "-Wl,-soname,libnccl.so.2", HERE / "behind.c", "-o", folder / "libnccl.so.2"], check=True
    )
    behind = [f"-L{folder}", "-l:libnccl.so.2"]
    subprocess.run([*words, HERE / "caller.c", "-o", folder / "caller", *behind], check=True)
    subprocess.run([*words, *shared, "-DMODULE", HERE / "caller.c", "-o", folder / "module.so", *behind], check=True)
    subprocess.run([*words, HERE / "main.c", "-o", folder / "main", "-ldl"], check=True)
    return SHIM / "build" / target / NAME, folder


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return Built(*build(tmp_path_factory.mktemp("nccl_api")))
