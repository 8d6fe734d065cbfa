"""Tables that are cut when they are asked for: of the nodes that are asked for, and as often as needed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ingest.window import NODE, WINDOW_DTYPE, LateTables, Rows, Window

Ints = npt.NDArray[np.int64]


class Cutter:
    """Three rows of a table on three nodes; remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, list[int] | None]] = []
        self.comms: list[int] | None = None

    def __call__(self, table: str, nodes: Ints | None, comms: npt.NDArray[np.uint64] | None) -> Rows:
        self.asked.append((table, None if nodes is None else nodes.tolist()))
        self.comms = None if comms is None else comms.tolist()
        rows = np.zeros(3, WINDOW_DTYPE[table])
        rows["node"] = [0, 1, 2]
        rows["comm_id"] = [7, 7, 8]
        return rows if nodes is None else rows[np.isin(rows["node"], nodes)]


def window(cutter: Cutter) -> Window:
    ops = np.zeros(2, WINDOW_DTYPE["op"])
    ops["node"] = [0, 2]
    nothing = np.zeros(0, NODE)
    return Window("job", 1, 0, 1, 1, 3, nothing, nothing, nothing, LateTables({"op": ops}, ("flow",), cutter))


def test_a_late_table_is_not_cut_before_it_is_asked_for_and_then_once() -> None:
    cutter = Cutter()
    made = window(cutter)
    assert len(made.rows("op")) == 2 and set(made.tables) == {"op", "flow"} and not cutter.asked
    assert len(made.rows("flow")) == len(made.rows("flow")) == 3
    assert cutter.asked == [("flow", None)]


def test_rows_on_some_nodes_are_cut_of_those_alone() -> None:
    cutter = Cutter()
    made = window(cutter)
    assert made.rows_on("flow", np.array([1])).tobytes() == made.rows("flow")[1:2].tobytes()
    assert made.rows_on("op", np.array([2]))["node"].tolist() == [2]
    assert cutter.asked == [("flow", [1]), ("flow", None)]
    made.rows_on("flow", np.array([0]))
    assert len(cutter.asked) == 2  # all of it is known by now


def test_a_table_that_nobody_has_is_empty() -> None:
    assert len(window(Cutter()).rows("nic")) == 0


def test_the_newest_rows_of_some_communicators_are_cut_of_those_alone() -> None:
    cutter, comms = Cutter(), np.array([7], np.uint64)
    made = window(cutter)
    made.newest_on("flow", np.array([1, 2]), comms)
    assert cutter.asked == [("flow", [1, 2])] and cutter.comms == [7]


def test_of_a_table_that_is_known_those_of_the_communicators_are_chosen() -> None:
    cutter, comms = Cutter(), np.array([7], np.uint64)
    made = window(cutter)
    assert len(made.rows("flow")) == 3
    found = made.newest_on("flow", np.array([1, 2]), comms)
    assert found["node"].tolist() == [1] and len(cutter.asked) == 1
