"""How far each process has been reported, on disk beside the spool: a restarted agent repeats no record and no loss.

A cut becomes true in one rename: its batches are set aside in the spool first, then this file is replaced and says up to
which batch it counts, then they are sent. An agent killed before that rename leaves what its successor reads from the
segments again, one killed after it leaves batches that its successor sends.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from nccl_instrument.agent.processes.trainer import Bookmark

NAME: Final = "bookmarks.json"


def load_bookmarks(folder: Path) -> tuple[dict[str, Bookmark], int]:
    """(file name → bookmark, number of the last batch they count); empty and 0 when there is no file to read."""
    try:
        saved = json.loads((folder / NAME).read_text())
        marks = {str(name): _bookmark(entry) for name, entry in saved["segments"].items()}
        return marks, int(saved["batches"])
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}, 0


def save_bookmarks(folder: Path, bookmarks: Mapping[str, Bookmark], batches: int) -> None:
    """Replace the file, with what has been read up to batch number `batches`; a full disk costs the bookmarks alone."""
    entries = {
        name: {"position": mark.position, "told": mark.told, "inode": mark.inode} for name, mark in bookmarks.items()
    }
    aside = folder / (NAME + ".part")
    with contextlib.suppress(OSError):
        aside.write_text(json.dumps({"batches": batches, "segments": entries}))
        aside.rename(folder / NAME)


def _bookmark(entry: dict[str, Any]) -> Bookmark:
    position = entry["position"]
    told = {str(kind): int(count) for kind, count in entry["told"].items()}
    return Bookmark(None if position is None else int(position), told, int(entry.get("inode", 0)))
