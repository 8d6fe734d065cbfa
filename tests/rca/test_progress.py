"""The state machine of a window is made once, while the window is held, and by the thresholds that are asked for."""

from __future__ import annotations

from dataclasses import replace
from weakref import ref

from rca.hang import progress
from rca.hang.progress import state_of
from rca.settings import DEFAULT
from tests.windows import make_window


def test_a_look_and_the_diagnosis_after_it_share_what_was_made_of_a_window() -> None:
    window = make_window(nic_down=3)
    first, second = state_of(window, DEFAULT), state_of(window, DEFAULT)
    assert second.graph is first.graph and second.window is window


def test_what_was_made_by_other_thresholds_or_of_a_window_with_other_rows_is_made_anew() -> None:
    window = make_window(nic_down=3)
    first = state_of(window, DEFAULT)
    assert state_of(window, replace(DEFAULT, fresh_ns=DEFAULT.fresh_ns // 2)).graph is not first.graph
    moved = state_of(replace(window, tables={**window.tables, "flow": window.rows("flow")[:0]}), DEFAULT)
    assert not len(moved.known.flow) and len(state_of(window, DEFAULT).known.flow)


def test_a_window_that_nobody_holds_any_more_goes_with_what_was_made_of_it() -> None:
    window = make_window(nic_down=3)
    n_before = len(progress._MADE)
    state_of(window, DEFAULT)
    assert len(progress._MADE) == n_before + 1
    held = ref(window)
    del window
    assert held() is None and len(progress._MADE) == n_before
