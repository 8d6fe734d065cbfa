"""Another profiler plugin beside ours: it is called as if it were alone, and so are we."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.nccl_instrument.plugin.driver import ABIS, Built, Driver, counted, records

Drive = Callable[..., Driver]
RECORDER = Path(__file__).parents[1] / "testbed" / "recorder.c"
QUIET = ("steady", "mixed", "silent", "graph", "early", "reinit", "abandoned")  # one thread, nothing repeated


@pytest.fixture(scope="module")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A plugin that writes down every call; its handles are running numbers."""
    library = tmp_path_factory.mktemp("recorder") / "librecorder.so"
    subprocess.run(
        ["cc", "-std=gnu11", "-O1", "-fPIC", "-shared", "-pthread", "-w", RECORDER, "-o", library], check=True
    )
    return str(library)


def calls(folder: Path) -> list[list[str]]:
    """What the recorder was called with, without the thread."""
    return [line.split()[1:] for line in (folder / "0.calls").read_text().splitlines()]


def run_alone(recorder: str, plugin: Built, abi: int, script: str, folder: Path) -> list[list[str]]:
    folder.mkdir()
    environment = {"RECORDER_FOLDER": str(folder), "RANK": "0"}
    command = [plugin.folder / "driver", recorder, str(abi), script]
    done = subprocess.run(command, input="\n" * 20, text=True, capture_output=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return calls(folder)


@pytest.mark.parametrize("abi", ABIS)
@pytest.mark.parametrize("script", QUIET)
def test_the_other_plugin_sees_what_it_would_see_alone(
    drive: Drive, plugin: Built, recorder: str, tmp_path: Path, script: str, abi: int
) -> None:
    alone = run_alone(recorder, plugin, abi, script, tmp_path / "alone")
    driver = drive(abi, script, DIOGENES_CHAIN_PLUGIN=recorder, RECORDER_FOLDER=str(tmp_path), RANK="0")
    driver.finish()
    assert calls(tmp_path) == alone


@pytest.mark.parametrize("abi", ABIS)
def test_kernels_are_counted_beside_another_plugin_too(drive: Drive, recorder: str, tmp_path: Path, abi: int) -> None:
    environment = {"DIOGENES_CHAIN_PLUGIN": recorder, "RECORDER_FOLDER": str(tmp_path), "RANK": "0"}
    driver = drive(abi, "kernels", **environment, DIOGENES_PROFILER_MASK="94")
    driver.until("stands")
    (row,) = driver.segment().comms()
    assert (row["n_enqueued"], row["kernels_begun"], row["kernels_open"]) == (4, 3, 1)


@pytest.mark.parametrize("abi", ABIS)
def test_what_we_trace_does_not_depend_on_the_other_plugin(
    drive: Drive, recorder: str, tmp_path: Path, abi: int
) -> None:
    driver = drive(abi, "normal", DIOGENES_CHAIN_PLUGIN=recorder, RECORDER_FOLDER=str(tmp_path), RANK="0")
    said = driver.until("moved")
    segment = driver.segment()
    rows, counters = records(segment), segment.counters()
    assert len(rows) == said["ops"] == 40 and (rows["n_flows"] == 4).all() and counted(segment) == {}
    assert counters["peer_wait_polls"] == said["polls"]
    assert counters["repeated_recv_starts"] == said["repeated_starts"]
    driver.until("finalized")
    started = {call[2]: call for call in calls(tmp_path) if call[0] == "start"}
    stopped = [call[1] for call in calls(tmp_path) if call[0] == "stop"]
    assert len(stopped) == len(set(stopped)) and set(stopped) == set(started)
    n_steps = sum(call[3] == "16" for call in started.values())
    assert n_steps == (0 if abi == 3 else said["flows"] * 20)


@pytest.mark.parametrize("script", ["nulls", "unknown", "stale", "contexts", "after_finalize", "pxn", "orphan"])
def test_what_crashes_plugins_is_kept_from_it_and_counted_by_us(
    drive: Drive, recorder: str, tmp_path: Path, script: str
) -> None:
    with_it, without = tmp_path / "with", tmp_path / "without"
    with_it.mkdir()
    without.mkdir()
    chained = drive(
        5,
        script,
        DIOGENES_CHAIN_PLUGIN=recorder,
        RECORDER_FOLDER=str(tmp_path),
        RANK="0",
        DIOGENES_SEGMENT_DIR=str(with_it),
    )
    plain = drive(5, script, DIOGENES_SEGMENT_DIR=str(without))
    chained.until("done")
    plain.until("done")
    ignored = {"repeated_stops", "stale_handles", "bad_contexts", "bad_handles", "null_handles"}
    mine, alone = counted(chained.segment()), counted(plain.segment())
    assert {name: n for name, n in mine.items() if name not in ignored} == {
        name: n for name, n in alone.items() if name not in ignored
    }
    numbers = {call[2] for call in calls(tmp_path) if call[0] == "start"}
    contexts = {call[1] for call in calls(tmp_path) if call[0] == "init"}
    for call in calls(tmp_path):
        assert call[0] != "stop" or call[1] in numbers
        assert call[0] != "start" or (call[1] in contexts and (call[4] == "0" or call[4] in numbers))


def test_each_plugin_gets_the_events_it_asked_for(drive: Drive, recorder: str, tmp_path: Path) -> None:
    driver = drive(
        5, "steady", DIOGENES_CHAIN_PLUGIN=recorder, RECORDER_FOLDER=str(tmp_path), RANK="0", RECORDER_MASK="2"
    )
    assert driver.until("done")["mask"] == 30
    kinds = {call[3] for call in calls(tmp_path) if call[0] == "start"}
    assert kinds == {"2"} and len(records(driver.segment())) == 5


def test_the_other_plugin_works_where_we_cannot_trace(drive: Drive, recorder: str, tmp_path: Path) -> None:
    driver = drive(
        5, "steady", DIOGENES_CHAIN_PLUGIN=recorder, RECORDER_FOLDER=str(tmp_path), RANK="0",
        DIOGENES_SEGMENT_DIR="/nowhere", RECORDER_MASK="2",
    )  # fmt: skip
    assert driver.until("done")["mask"] == 2
    assert sum(call[0] == "start" for call in calls(tmp_path)) == 5


@pytest.mark.parametrize("path", ["/nowhere.so", "", "/dev/null"])
def test_a_plugin_that_cannot_be_loaded_leaves_us_alone(drive: Drive, path: str) -> None:
    driver = drive(5, "steady", DIOGENES_CHAIN_PLUGIN=path)
    driver.until("done")
    assert len(records(driver.segment())) == 5
    assert ("DIOGENES_CHAIN_PLUGIN cannot be loaded" in driver.finish()) == bool(path)


def test_our_own_plugin_is_not_chained_to_itself(drive: Drive, plugin: Built) -> None:
    driver = drive(5, "steady", DIOGENES_CHAIN_PLUGIN=str(plugin.folder / "libnccl-profiler-diogenes.so"))
    driver.until("done")
    assert len(records(driver.segment())) == 5 and counted(driver.segment()) == {}


@pytest.mark.sanitizer
@pytest.mark.parametrize("script", ["normal", "concurrent", "forks", "stale", "many_lost_ops", "reloads"])
def test_a_chained_plugin_touches_no_memory_it_should_not(
    drive: Drive, plugin_asan: Built, recorder: str, tmp_path: Path, script: str
) -> None:
    said = drive(
        7, script, plugin_asan, DIOGENES_CHAIN_PLUGIN=recorder, RECORDER_FOLDER=str(tmp_path), RANK="0",
        RECORDER_MASK="14", DIOGENES_SEGMENT_BYTES=str(2 << 20),
    ).finish()  # fmt: skip
    assert "runtime error" not in said and "Sanitizer" not in said


@pytest.mark.sanitizer
@pytest.mark.parametrize("abi", [3, 7])
def test_chained_callbacks_do_not_race(
    drive: Drive, plugin_tsan: Built, recorder: str, tmp_path: Path, abi: int
) -> None:
    said = drive(
        abi, "concurrent", plugin_tsan, DIOGENES_CHAIN_PLUGIN=recorder, RECORDER_FOLDER=str(tmp_path), RANK="0",
        RECORDER_MASK="14", DIOGENES_SEGMENT_BYTES=str(2 << 20),
    ).finish()  # fmt: skip
    assert "ThreadSanitizer" not in said
