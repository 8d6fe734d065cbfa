"""The shim, a libibverbs without hardware behind it, and a caller like NCCL."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

SHIM = Path(__file__).parents[3] / "nccl_instrument" / "verbs"
HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Built:
    """shim, behind: folders with a library each; caller: a program. flags: what it was built with besides."""

    shim: Path
    behind: Path
    caller: Path

    def run(self, scenario: str, into: Path | None, *, with_shim: bool = True) -> subprocess.CompletedProcess[str]:
        folders = [self.shim, self.behind] if with_shim else [self.behind]
        environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(map(str, folders))}
        environment.pop("DIOGENES_VERBS", None)
        if into:
            environment["DIOGENES_VERBS"] = str(into)
        words = [str(self.caller), scenario]
        return subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=300)


def build(folder: Path, target: str = "", flags: tuple[str, ...] = ()) -> Built:
    subprocess.run(["make", "-s", "-C", SHIM, *([target] if target else [])], check=True)
    words = ["cc", "-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", f"-I{SHIM / 'src'}"]
    library = ["-shared", "-fPIC", "-Wl,-soname,libibverbs.so.1", f"-Wl,--version-script={HERE / 'behind.map'}"]
    subprocess.run([*words, *library, HERE / "behind.c", "-o", folder / "libibverbs.so.1"], check=True)
    (folder / "libibverbs.so").symlink_to("libibverbs.so.1")
    subprocess.run([*words, *flags, HERE / "caller.c", "-o", folder / "caller", "-ldl"], check=True)
    return Built(SHIM / "build" / target, folder, folder / "caller")


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(tmp_path_factory.mktemp("verbs"))
