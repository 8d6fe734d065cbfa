"""On an NCCL without profiler interface, calls and queue pairs alone give what each op moved, where that can be told."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from nccl_instrument.agent.nics import NicReader
from nccl_instrument.agent.sending.losses import Losses
from nccl_instrument.agent.sweep import Sweep
from nccl_instrument.tables import DTYPE, TRAFFIC_FINISHED, TRAFFIC_P2P, TRAFFIC_SOURCES
from nccl_instrument.wire import Rows, decode_batch
from tests.nccl_instrument.verbs.conftest import HERE, Built

API = HERE.parents[2] / "nccl_instrument" / "nccl_api"
OPS, EPOCH_NS = 20, 32_000
SIZES, SHARES = (4, 2, 4), (100, 100, 37)


def built_job(folder: Path) -> Path:
    subprocess.run(["make", "-s", "-C", API], check=True)
    words = ["gcc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{HERE}"]
    words.append(f"-I{HERE.parents[2] / 'nccl_instrument' / 'verbs' / 'src'}")
    library = ["-shared", "-fPIC", "-Wl,-soname,libnccl.so.2", str(HERE / "network_nccl.c")]
    subprocess.run([*words, *library, "-o", folder / "libnccl.so.2", "-ldl"], check=True)
    subprocess.run([*words, HERE / "api_job.c", "-o", folder / "job", f"-L{folder}", "-l:libnccl.so.2"], check=True)
    return folder / "job"


def followed(job: subprocess.Popen[str], into: Path) -> tuple[Rows, np.ndarray]:
    """All rows of `traffic` that an agent beside the job hands over, and what the job told of itself."""
    losses, found = Losses(), list[Rows]()
    agent = Sweep(
        [into], "node", "", NicReader([]), losses, {},
        lambda cut, _: found.extend(decode_batch(encoded).rows("traffic") for _, encoded in cut),
    )  # fmt: skip
    assert job.stdout is not None
    told = np.array([job.stdout.readline().split() for _ in range(4 * OPS)], np.int64)
    until = time.monotonic() + 20
    while time.monotonic() < until and not _is_all(found):
        for look in (agent.followed.look, agent.verbs.look):
            look()
        agent.cut(time.monotonic_ns())
        time.sleep(0.3)
    agent.followed.close()
    agent.verbs.close()
    assert not len(losses.take("old"))
    return np.concatenate(found), told


def _is_all(found: list[Rows]) -> bool:
    rows = np.concatenate([np.zeros(0, DTYPE["traffic"]), *found])
    n_finished = int((rows["flags"] & TRAFFIC_FINISHED != 0).sum())
    return n_finished >= 6 * OPS and rows["n_bytes"][rows["op"] == -1].sum() >= _untold_bytes() - 64 * OPS


def _untold_bytes() -> float:
    return sum(volume(2, op) for op in range(1, OPS + 1))


@pytest.fixture(scope="module")
def moved(built: Built, tmp_path_factory: pytest.TempPathFactory) -> tuple[Rows, np.ndarray]:
    folder, into = tmp_path_factory.mktemp("job"), tmp_path_factory.mktemp("traces")
    environment = {
        **os.environ, "LD_LIBRARY_PATH": f"{built.shim}:{built.behind}:{folder}", "DIOGENES_VERBS": str(into),
        "DIOGENES_SEGMENT_DIR": str(into), "RANK": "1", "WORLD_SIZE": "4", "DIOGENES_JOB": "old",
        "LD_PRELOAD": str(API / "build" / "libdiogenes-nccl-api.so"),
    }  # fmt: skip
    job = subprocess.Popen(
        [built_job(folder)], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        return followed(job, into)
    finally:
        job.kill()
        job.communicate()


def of_comm(moved: tuple[Rows, np.ndarray], which: int, p2p: int = 0) -> tuple[Rows, np.ndarray]:
    """Rows of the which-th communicator, and (OPS, 2) begin and end of its ops as the job told them."""
    rows, told = moved
    first = {
        int(one): at for at, one in enumerate(dict.fromkeys(rows[np.argsort(rows["start_ns"])]["comm_id"].tolist()))
    }
    mine = rows[[first[int(one)] == which for one in rows["comm_id"]]]
    mine = mine[(mine["flags"] & TRAFFIC_P2P != 0) == bool(p2p)]
    return mine, told[(told[:, 0] == which) & (told[:, 2] == p2p)][:, 3:]


def volume(which: int, op: int) -> float:
    n = SIZES[which]
    return 2 * (262144 + 65536 * (op % 3)) * 4 * (n - 1) / n * SHARES[which] / 100


@pytest.mark.parametrize(("which", "peer"), [(0, -1), (1, 0)])
def test_collectives_are_told_op_by_op_once_the_first_ones_said_how_they_run(
    moved: tuple[Rows, np.ndarray], which: int, peer: int
) -> None:
    rows, told = of_comm(moved, which)
    rows = rows[rows["flags"] & TRAFFIC_FINISHED != 0]
    assert sorted(zip(rows["op"].tolist(), rows["channel"].tolist(), strict=True)) == [
        (op, channel) for op in range(1, OPS + 1) for channel in (0, 1)
    ]
    for op in range(1, OPS + 1):
        mine = rows[rows["op"] == op]
        assert abs(int(mine["n_bytes"].sum()) - volume(which, op)) <= 64  # units of 32 bytes
        assert (
            mine["start_ns"].min() >= told[op - 1, 0] - EPOCH_NS and mine["end_ns"].max() <= told[op - 1, 1] + EPOCH_NS
        )
        assert (mine["actual_ns"] <= mine["end_ns"] - mine["start_ns"]).all() and (mine["actual_ns"] > 0).all()
    assert (rows["peer"] == peer).all() and (rows["comm_rank"] == 1).all() and (rows["nic"] == b"mlx5_0").all()
    assert (rows["source"] == TRAFFIC_SOURCES.index("verbs")).all() and len(set(rows["queue_pair"].tolist())) == 2


def test_sends_say_their_peer_themselves(moved: tuple[Rows, np.ndarray]) -> None:
    rows, told = of_comm(moved, 0, p2p=1)
    rows = rows[rows["flags"] & TRAFFIC_FINISHED != 0]
    assert (rows["peer"] == 3).all() and len(rows) == 2 * OPS
    for op in range(1, OPS + 1):
        mine = rows[rows["op"] == op]
        assert abs(int(mine["n_bytes"].sum()) - 800_000) <= 64
        assert (
            mine["start_ns"].min() >= told[op - 1, 0] - EPOCH_NS and mine["end_ns"].max() <= told[op - 1, 1] + EPOCH_NS
        )


def test_where_the_volume_fits_no_algorithm_no_op_is_named_but_bytes_are(moved: tuple[Rows, np.ndarray]) -> None:
    rows, _ = of_comm(moved, 2)
    assert len(rows) and (rows["op"] == -1).all() and not (rows["flags"] & TRAFFIC_FINISHED).any()
    assert abs(int(rows["n_bytes"].sum()) - _untold_bytes()) <= 64 * OPS
