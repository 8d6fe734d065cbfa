"""The same scripts under AddressSanitizer, UndefinedBehaviorSanitizer and ThreadSanitizer."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.nccl_instrument.plugin.driver import Built, Driver

Drive = Callable[..., Driver]
SCRIPTS = (
    "normal", "hang", "p2p", "lost_stops", "nulls", "unknown", "stale", "contexts", "after_finalize", "pxn", "orphan",
    "inside_node", "reopened", "mixed", "silent", "abandoned", "graph", "queue_pair", "reinit", "many_comms",
    "many_ops", "many_flows", "many_local_ops", "many_lost_ops", "forked", "concurrent", "early",
    "refused_flows", "many_foreign_flows", "reopened_done", "crowd", "churn", "forks", "reloads", "ticks", "steady",
    "kernels", "late_kernels",
)  # fmt: skip
THREADED = ("normal", "hang", "p2p", "lost_stops", "concurrent", "many_lost_ops", "crowd", "reloads", "ticks")
SMALL = str(2 << 20)


@pytest.mark.sanitizer
@pytest.mark.parametrize("abi", [3, 4, 7])
@pytest.mark.parametrize("script", SCRIPTS)
def test_no_script_touches_memory_it_should_not(drive: Drive, plugin_asan: Built, script: str, abi: int) -> None:
    said = drive(abi, script, plugin_asan, DIOGENES_SEGMENT_BYTES=SMALL).finish()
    assert "runtime error" not in said and "Sanitizer" not in said


@pytest.mark.sanitizer
@pytest.mark.parametrize("abi", [3, 7])
@pytest.mark.parametrize("script", THREADED)
def test_no_script_races(drive: Drive, plugin_tsan: Built, script: str, abi: int) -> None:
    said = drive(abi, script, plugin_tsan, DIOGENES_SEGMENT_BYTES=SMALL).finish()
    assert "ThreadSanitizer" not in said
