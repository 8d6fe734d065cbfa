"""Windows recorded from the live testbed, each a few seconds after a fault was injected into the running job.

The file's name says what was injected and on which ranks; nothing in the file does. They keep the rules honest against
what a real job leaves behind, where tests/windows.py only knows a model of it.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from ingest.window import MEMBER, NODE, RANK, WINDOW_DTYPE, Rows, Window
from rca.diagnose import diagnose
from rca.findings import Component, SymptomKind
from rca.triggers.look import look
from rca.triggers.normal import ALL, Normal

FOLDER = Path(__file__).parent / "recorded"
COMPONENTS = {
    "nic_down": Component.NIC,
    "frozen": Component.PROCESS,
    "killed": Component.PROCESS,
    "stuck_before": Component.SOFTWARE,
    "proxy_asleep": Component.PROXY,
}
USUAL = Normal(intervals={ALL: {100: 1000}})


def load_recorded(path: Path) -> Window:
    """A recorded window, brought to today's tables: what came later is empty or 0, as if the old agent had not known it."""
    with np.load(path, allow_pickle=False) as saved:
        arrays = {name: saved[name] for name in saved.files}
    head = json.loads(str(arrays.pop("head")))
    head.pop("format")
    tables = {
        name: _today(arrays.get(f"table_{name}", np.zeros(0, dtype)), dtype) for name, dtype in WINDOW_DTYPE.items()
    }
    places = {
        name: _today(arrays[name], dtype) for name, dtype in (("nodes", NODE), ("ranks", RANK), ("members", MEMBER))
    }
    return Window(**head, **places, tables=tables)


def _today(rows: Rows, dtype: np.dtype[np.void]) -> Rows:
    new = np.zeros(len(rows), dtype)
    for name in set(rows.dtype.names or ()) & set(dtype.names or ()):
        new[name] = rows[name]
    return new


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.npz")), ids=lambda path: path.stem)
def test_what_was_injected_is_named(path: Path) -> None:
    fault = next(name for name in COMPONENTS if path.stem.startswith(name))
    ranks = tuple(int(word) for word in path.stem.removeprefix(fault).split("_") if word.isdigit())
    window = load_recorded(path)
    symptom = look(window, USUAL).symptoms[0]
    best = diagnose(window, symptom).findings[0]
    assert symptom.kind is SymptomKind.FAILURE
    assert (best.culprits, best.component) == (ranks, COMPONENTS[fault])
