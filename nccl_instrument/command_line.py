"""How every command of ours ends: that nobody reads the rest, as with `| head`, is no fault and no traceback."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Final

READER_GONE: Final = 141  # as of a program that SIGPIPE ended


def run(command: Callable[[list[str]], int], arguments: list[str]) -> int:
    """The exit status of `command(arguments)`."""
    try:
        try:
            return command(arguments)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at exit
        return READER_GONE
