"""How far each process has been reported, on disk beside the spool: a restarted agent repeats no record and no loss.

Written after the batches of a cut were handed over; a killed agent may so lose a second of completion records,
which is counted nowhere, and never sends one twice for longer than that.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from nccl_instrument.agent.trainer import Bookmark

NAME: Final = "bookmarks.json"


def load_bookmarks(folder: Path) -> dict[str, Bookmark]:
    """Segment name → bookmark; empty when there is no file or it cannot be read."""
    try:
        saved = json.loads((folder / NAME).read_text())
        return {str(name): _bookmark(entry) for name, entry in saved.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}


def save_bookmarks(folder: Path, bookmarks: Mapping[str, Bookmark]) -> None:
    """Replace the file; a full disk costs the bookmarks, nothing else."""
    entries = {name: {"position": mark.position, "told": mark.told} for name, mark in bookmarks.items()}
    aside = folder / (NAME + ".part")
    with contextlib.suppress(OSError):
        aside.write_text(json.dumps(entries))
        aside.rename(folder / NAME)


def _bookmark(entry: dict[str, Any]) -> Bookmark:
    position = entry["position"]
    told = {str(kind): int(count) for kind, count in entry["told"].items()}
    return Bookmark(None if position is None else int(position), told)
