"""Where agents say in which rack their node stands, a finding says how much of the rack it touches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ingest.window import BadWindow, Window, load_window, save_window
from rca.findings import Cover
from rca.racks import rack_cover
from tests.rca import test_slowdown
from tests.rca.test_hang import diagnosed
from tests.windows import make_window

ALL = np.array([0, 1])


def standing(window: Window, *racks: str) -> Window:
    names = window.nodes["name"].tolist()
    return replace(window, racks={name: rack for name, rack in zip(names, racks, strict=True) if rack})


def test_a_hang_says_how_many_of_the_racks_nodes_it_touches() -> None:
    window = make_window(nic_down=3)
    n_others = len(window.nodes) - 2
    (finding, *_) = diagnosed(standing(window, "r1", "r1", *["r2"] * n_others)).findings
    assert [one for one in finding.cover if "rack" in one.whole] == [Cover("node", 1, 2, "rack r1")]


def test_a_slowdown_says_so_too() -> None:
    window = test_slowdown.recorded("slow_compute_3")
    found = test_slowdown.diagnosed(standing(window, *["r7"] * len(window.nodes))).findings[0]
    assert Cover("node", 1, len(window.nodes), "rack r7") in found.cover


@pytest.mark.parametrize("racks", [("", ""), ("r1", ""), ("r1", "r2")])
def test_of_nodes_whose_rack_is_not_known_or_not_the_same_no_rack_is_counted(racks: tuple[str, str]) -> None:
    window = make_window()
    assert rack_cover(standing(window, *racks, *[""] * (len(window.nodes) - 2)), ALL) == ()


def test_a_saved_window_knows_its_racks(tmp_path: Path) -> None:
    window = standing(make_window(), *["r1"] * len(make_window().nodes))
    save_window(tmp_path / "w.npz", window)
    assert load_window(tmp_path / "w.npz").racks == window.racks


def test_racks_that_are_no_words_are_refused(tmp_path: Path) -> None:
    window = make_window()
    save_window(tmp_path / "w.npz", replace(window, racks={"node0": 7}))  # type: ignore[dict-item]
    with pytest.raises(BadWindow):
        load_window(tmp_path / "w.npz")
