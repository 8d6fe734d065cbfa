"""Reading without Python's search for unreachable cycles.

A diagnosis holds a hundred thousand small objects for as long as it reads, none of them in a cycle. Python looks at all that
lives again and again while they are made: an eighth of the time that reading takes.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """No cycles are looked for inside; afterwards as before. In two threads at once: until the first that began is through."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
