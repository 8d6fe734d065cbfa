"""The shim begins file after file, the agent reads them all, and nothing is left of them in the end."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from nccl_instrument.agent.verbs.files import VerbsFiles
from tests.nccl_instrument.verbs.conftest import HERE, Built

ROUNDS, PAIRS = 50, 1_100


def test_no_byte_is_lost_from_file_to_file(built: Built, tmp_path: Path) -> None:
    words = ["gcc", "-std=gnu11", "-O1", f"-I{HERE}", f"-I{HERE.parents[2] / 'nccl_instrument' / 'verbs' / 'src'}"]
    subprocess.run([*words, HERE / "rounds.c", "-o", tmp_path / "rounds", "-ldl"], check=True)
    (into := tmp_path / "traces").mkdir()
    environment = {
        **os.environ, "LD_LIBRARY_PATH": f"{built.shim}:{built.behind}", "DIOGENES_VERBS": str(into),
        "DIOGENES_VERBS_BYTES": str(1 << 20),
    }  # fmt: skip
    refused: list[tuple[str, int]] = []
    files = VerbsFiles([into], lambda kind, pid: refused.append((kind, pid)))
    n_bytes, seen = 0, set[int]()
    job = subprocess.Popen([tmp_path / "rounds", str(ROUNDS)], env=environment)
    try:
        until = time.monotonic() + 120
        while time.monotonic() < until and (job.poll() is None or list(into.iterdir())):
            files.look()
            seen |= {inode for _, inode in files.files}
            n_bytes += sum(int(one.flows["bytes"].sum()) for file in files.files.values() for one in file.fresh)
            files.retire()
            time.sleep(0.2)
    finally:
        job.kill()
        job.wait()
        files.close()
    assert n_bytes == ROUNDS * PAIRS * 4096
    assert len(seen) > 1 and not refused and not list(into.iterdir())
