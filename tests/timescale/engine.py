"""TimescaleDB for tests: the engine of engine.mjs in PostgreSQL's place, when DIOGENES_TEST_STORE is `timescale`.

The engine is PostgreSQL 17 and the real TimescaleDB, compiled to WebAssembly, so it needs Node and one npm package and no
server. It keeps its data in a folder like a server does and survives SIGKILL like one.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from django.db import connection

from console.supervisor.children import Child, Recipe

FOLDER: Final = Path(__file__).resolve().parent
DATABASE: Final = "postgres"
"""The engine has this one database, whatever name a client asks for."""
READY_SECONDS: Final = 60.0
IS_WANTED: Final = os.environ.get("DIOGENES_TEST_STORE", "") == "timescale"


def engine_recipe(data: Path, sockets: Path) -> Recipe:
    """The engine on the folder `data`, listening in `sockets` as PostgreSQL would."""
    node = shutil.which("node")
    assert node, "the tests on TimescaleDB need Node 20 or newer on the path"
    assert (FOLDER / "node_modules").is_dir(), "the tests on TimescaleDB need their npm package: make timescale"
    socket = sockets / ".s.PGSQL.5432"
    socket.unlink(missing_ok=True)  # left by one that was killed
    return Recipe(name="postgres", argv=[node, str(FOLDER / "engine.mjs"), str(data), str(socket)])


def wait_for_engine(child: Child) -> None:
    """Returns when it listens. Raises AssertionError with what it said when it does not."""
    deadline = time.monotonic() + READY_SECONDS
    while "ready" not in child.log_text():
        assert child.is_running() and time.monotonic() < deadline, f"TimescaleDB did not start: {child.log_tail()}"
        time.sleep(0.05)


def empty_by_deleting() -> None:
    """Let Django empty tables by DELETE: TRUNCATE makes every table's and index's file anew, a third of a second."""

    def sql_flush(style: object, tables: Sequence[str], **options: bool) -> list[str]:
        return [f'DELETE FROM "{table}"' for table in tables]

    connection.ops.sql_flush = sql_flush
