"""Text that others sent, made fit for a page, a terminal and a database: nothing in it that cannot be printed."""

from __future__ import annotations

from pathlib import Path


def printable(text: str) -> str:
    """`text` with a space for whatever cannot be printed: NUL, line ends, escapes, halves of characters."""
    return text if text.isprintable() else "".join(one if one.isprintable() else " " for one in text)


def window_hint(path: Path) -> str:
    """Which command is for a saved window, in a sentence after a blank; "" of files that are not called like one."""
    return f" A saved window is diagnosed by `python -m rca {printable(str(path))}`." if path.suffix == ".npz" else ""
