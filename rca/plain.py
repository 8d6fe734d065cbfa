"""Text that others sent, made fit for a page, a terminal and a database: nothing in it that cannot be printed."""

from __future__ import annotations


def printable(text: str) -> str:
    """`text` with a space for whatever cannot be printed: NUL, line ends, escapes, halves of characters."""
    return text if text.isprintable() else "".join(one if one.isprintable() else " " for one in text)
