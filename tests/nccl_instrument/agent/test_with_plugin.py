"""From the real plugin to the wire: a driver calls it as NCCL does and hangs, the agent reports, the driver is killed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.nccl_instrument.plugin.driver import PLUGIN_FOLDER, Built, Driver

from .conftest import Node


@pytest.fixture(scope="module")
def plugin() -> Built:
    subprocess.run(["make", "-s", "-C", PLUGIN_FOLDER, "all"], check=True)
    return Built(Path(PLUGIN_FOLDER) / "build", {})


@pytest.mark.parametrize("abi", [3, 5, 7])
def test_a_rank_that_hangs_and_is_killed_is_told_by_every_interface_version(
    abi: int, node: Node, plugin: Built
) -> None:
    node.segments.mkdir()
    with Driver(plugin, abi, "hang", node.segments, DIOGENES_JOB="job", RANK="3") as driver:
        driver.until("moved")
        node.start_agent()
        first = node.next_batches(2)[0]
        assert {(comm["abi"], comm["global_rank"]) for comm in first.rows("comm")} == {(abi, 3)}
        assert (first.rows("comm")["comm_id"] != 0).all()
        assert len(first.rows("op")) == 4
        hanging = first.rows("live_op")["op"].tolist()
        assert len(hanging) == 2
        driver.process.kill()
        driver.process.wait()
        last = node.next_batches(3)[-1]
        assert last.rows("process")[["pid", "alive", "state"]].tolist() == [(driver.process.pid, 0, ord("X"))]
        assert last.rows("live_op")["op"].tolist() == hanging
        assert len(last.rows("flow")) == 8
        assert (last.rows("flow")["stuck_ns"] > 0).all()


@pytest.mark.parametrize(("mask", "told"), [("94", (4, 3, 1)), ("30", (4, 0, 0))])
def test_what_the_gpu_tells_of_its_kernels_reaches_the_wire_where_nccl_was_asked(
    mask: str, told: tuple[int, int, int], node: Node, plugin: Built
) -> None:
    node.segments.mkdir()
    script = "kernels" if mask == "94" else "launches"
    environment = {"DIOGENES_JOB": "job", "RANK": "3", "DIOGENES_PROFILER_MASK": mask}
    with Driver(plugin, 7, script, node.segments, **environment) as driver:
        driver.until("stands")
        node.start_agent()
        (row,) = node.next_batches(2)[-1].rows("progress")
        assert (row["n_enqueued"], row["kernels_begun"], row["kernels_open"]) == told
        assert (row["last_kernel_ns"] > row["last_enqueued_ns"]) == (mask == "94")
