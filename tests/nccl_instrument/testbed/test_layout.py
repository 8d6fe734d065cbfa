"""Groups, NICs and refusals of a layout."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from nccl_instrument.sizes import LayoutError
from nccl_instrument.testbed import pages
from nccl_instrument.testbed.layout import Layout
from nccl_instrument.testbed.physics import Physics, PhysicsError


def groups(layout: Layout, kind: str) -> list[tuple[int, ...]]:
    return [c.members for c in layout.communicators if c.kind == kind]


def test_default_layout_keeps_tensor_groups_inside_nodes_and_lets_the_others_cross() -> None:
    layout = Layout()
    assert groups(layout, "tp") == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert groups(layout, "dp") == [(0, 2), (1, 3), (4, 6), (5, 7)]
    assert groups(layout, "pp") == [(0, 4), (1, 5), (2, 6), (3, 7)]
    assert layout.warnings() == []


def test_every_nic_carries_a_data_and_a_pipeline_group() -> None:
    layout = Layout()
    for nic in layout.nics:
        kinds = {c.kind for rank in layout.ranks_on_nic(nic) for c in layout.communicators if rank in c.members}
        assert {"dp", "pp"} <= kinds


def test_ranks_share_a_nic_when_there_are_fewer_nics() -> None:
    layout = Layout(nics_per_node=1)
    assert [layout.nic_of(rank).number for rank in range(8)] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert layout.ranks_on_nic(layout.nic_of(3)) == [2, 3]


def test_groups_of_one_have_no_communicator() -> None:
    layout = Layout(tp=1, pp=1, dp=4)
    assert [c.kind for c in layout.communicators] == ["world", "dp"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"tp": 3, "pp": 1, "dp": 1}, "do not fill nodes of 2"),
        ({"tp": 0}, "--tp must be at least 1"),
        ({"tp": 1, "pp": 1, "dp": 1, "ranks_per_node": 1}, "nobody to talk to"),
        ({"dp": 64}, "too many"),
        ({"nics_per_node": 3}, "--nics-per-node"),
    ],
)
def test_impossible_layouts_are_refused_with_a_sentence(words: dict[str, int], sentence: str) -> None:
    with pytest.raises(LayoutError, match=sentence):
        Layout(**words)


def test_a_layout_that_cannot_tell_a_nic_from_its_link_is_warned_about() -> None:
    assert "may look like its link" in Layout(tp=1, pp=1, dp=4).warnings()[0]
    assert "crosses a NIC" in Layout(tp=2, pp=1, dp=1).warnings()[0]


@pytest.mark.parametrize("words", [{"n_channels": 9}, {"link_mbit": 0.0}, {"jitter": 1.0}, {"dp_kib": 10**6}])
def test_impossible_sizes_are_refused(words: dict[str, float]) -> None:
    with pytest.raises(PhysicsError):
        Physics(**words)  # type: ignore[arg-type]


def test_control_page_has_the_engines_layout(engine: Path) -> None:
    printed = json.loads(subprocess.run([engine, "--offsets"], capture_output=True, check=True).stdout)
    tables = {"job_page": pages.JOB_OFFSETS, "rank_page": pages.RANK_OFFSETS, "nic_page": pages.NIC_OFFSETS}
    ours = {f"{table}.{name}": at for table, offsets in tables.items() for name, at in offsets.items()}
    ours |= {"page_bytes": pages.PAGE_BYTES, "nic_page_bytes": pages.NIC_PAGE_BYTES}
    assert printed == ours | {"n_recent_iterations": pages.N_RECENT_ITERATIONS}
