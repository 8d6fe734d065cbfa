"""The file in which a zip of dumps says who gave none, and why: a line for each process, written and read here.

stacks of rank 3 on node-1: it is no Python process
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from nccl_instrument.dumps import KINDS, Silent
from rca.dumps.reasons import one_reason
from rca.plain import printable

SILENT_FILE: Final = "silent.txt"
LINES_MAX: Final = 100_000
_LINE: Final = re.compile(r"(\w+) of rank (-?\d{1,7}) on ([^:\n]{0,200}): ([^\n]{1,1000})")


def silent_text(silent: Iterable[Silent]) -> str:
    """The file: of several looks that had the same to say it is said once."""
    return "".join(dict.fromkeys(map(silent_line, one_reason(silent))))


def silent_line(one: Silent) -> str:
    """One line of the file."""
    node, why = (" ".join(text.split()) for text in (one.node.replace(":", "_"), one.why))
    return f"{one.kind} of rank {one.rank} on {node}: {why}\n"


def silent_in(raw: bytes) -> list[Silent]:
    """Who gave no dump, of at most LINES_MAX; what is no such line is left out: anybody may name a file so."""
    lines = raw.decode("utf-8", "replace").splitlines()[:LINES_MAX]
    found = (_LINE.fullmatch(line) for line in lines)
    return [
        Silent(int(one[2]), printable(one[3]), one[1], printable(one[4])) for one in found if one and one[1] in KINDS
    ]
