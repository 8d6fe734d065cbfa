"""Dumps of real jobs: four gloo ranks of torch 2.13, two tp and two dp groups and two groups of all, wrong at step 20.

What the loop does in a step: all_reduce in dp, broadcast in tp, all_reduce in `a`, all_reduce in `b`; at step 20 also an
all_reduce in the world.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

FOLDER = Path(__file__).with_name("dumps")
RANKS = (0, 1, 2, 3)


def dumps_of(case: str, *, is_json: bool = False) -> list[tuple[str, bytes]]:
    """Name and bytes of every rank's dump. case: healthy, loader, order, skip or kind."""
    with zipfile.ZipFile(FOLDER / f"{case}.zip") as archive:
        names = [name for name in archive.namelist() if name.endswith(".json") == is_json]
        return [(name, archive.read(name)) for name in names]
