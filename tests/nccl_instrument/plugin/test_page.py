"""docs/plugin.md names every counter and every setting of the plugin."""

from __future__ import annotations

import re

import pytest

from nccl_instrument.agent.processes.segment_layout import COUNTERS
from tests.nccl_instrument.plugin.driver import PLUGIN_FOLDER

PAGE = (PLUGIN_FOLDER.parents[1] / "docs" / "plugin.md").read_text()


@pytest.mark.parametrize("counter", COUNTERS)
def test_the_page_explains_every_counter(counter: str) -> None:
    assert f"`{counter}`" in PAGE


def test_the_page_lists_every_setting() -> None:
    sources = "".join(path.read_text() for path in PLUGIN_FOLDER.glob("*.c"))
    settings = set(re.findall(r'"(DIOGENES_\w+)"', sources)) - {"DIOGENES_K8S_JOB"}
    suffixes = {name.removeprefix("DIOGENES") for name in settings}
    assert suffixes and not [suffix for suffix in suffixes if suffix not in PAGE]
