"""Embedded PostgreSQL and Valkey for one test session, started only when a test needs them.

The addresses are fixed before Django reads its settings, the servers follow on first use, so tests of pure modules
cost nothing. The recipes are those of `manage.py up`; durability is switched off, nothing here survives the session.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from console.supervisor import servers
from console.supervisor.children import Child, Recipe, start
from tests.timescale import engine

FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "shared_buffers": "32MB"}
# What points Django at these servers; a test that runs a stack of its own takes them out of its environment.
SETTINGS = ("DATABASE_URL", "REDIS_URL", "DIOGENES_SECRET_KEY", "DIOGENES_DATA")


@dataclass
class TestServers:
    """A pair of servers in one short temporary folder, which also holds their data."""

    __test__ = False
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="dgs-")))
    running: dict[str, Child] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        """What settings need to find the servers."""
        return {"DATABASE_URL": servers.database_url(self.folder), "REDIS_URL": servers.redis_url(self.folder)}

    def start_postgres(self, settings: Mapping[str, str] = {}, log_folder: Path | None = None) -> None:
        """log_folder: where a new cluster's write-ahead log lies, when not beside its tables."""
        if "postgres" in self.running:
            return
        if engine.IS_WANTED:
            engine.wait_for_engine(self._start(engine.engine_recipe(self.folder / "engine", self.folder)))
            return
        account = servers.postgres_account()
        data = self.folder / "pg"
        is_new = not data.exists()
        servers.prepare_postgres(data, account)
        if log_folder is not None and is_new:
            shutil.copytree(data / "pg_wal", log_folder, dirs_exist_ok=True)
            shutil.rmtree(data / "pg_wal")
            (data / "pg_wal").symlink_to(log_folder)
            for path in (log_folder, *log_folder.rglob("*")) if account.run_as else ():
                os.chown(path, *account.run_as)
        child = self._start(servers.postgres_recipe(data, self.folder, account, {**FAST, **settings}))
        servers.wait_for_postgres(child, self.folder)
        servers.ensure_database(self.folder)

    def start_valkey(self) -> None:
        if "valkey" in self.running:
            return
        child = self._start(servers.valkey_recipe(self.folder / "valkey", self.folder))
        servers.wait_for_valkey(child, self.folder)

    def _start(self, recipe: Recipe) -> Child:
        child = start(recipe, self.folder / f"{recipe.name}.log")
        self.running[recipe.name] = child
        return child

    def stop(self) -> None:
        for child in reversed(self.running.values()):
            child.stop()
        self.running.clear()
        shutil.rmtree(self.folder, ignore_errors=True)


def point_django_at(test_servers: TestServers) -> None:
    """Set the environment Django's settings are read from; a developer's own database is never touched."""
    os.environ.update(test_servers.environment())
    os.environ.update(
        DJANGO_SETTINGS_MODULE="console.settings",
        DIOGENES_SECRET_KEY="only-for-tests",
        DIOGENES_DATA=str(test_servers.folder / "var"),
        DIOGENES_ROLLUP_DAYS="10000",  # what tests send is of one day in 2026
    )
