"""Everything `manage.py up` runs, in the order in which it is started.

Servers first (or those named by DATABASE_URL and REDIS_URL), then the schema and the first team, then the console's
processes, the demo last. Each step says what it does and waits until the thing answers.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field

import psycopg
import redis

from console.supervisor import processes, servers
from console.supervisor.children import Child, Recipe, start
from console.supervisor.folder import DataFolder
from console.supervisor.servers import ServerFailed


@dataclass
class Stack:
    """A stack on one data folder: `children` in start order, `env` what they all are given."""

    folder: DataFolder
    port: int
    say: Callable[[str], None]
    env: dict[str, str] = field(default_factory=dict)
    children: list[Child] = field(default_factory=list)

    @property
    def ingest_port(self) -> int:
        return self.port + 1

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self, with_demo: bool) -> str:
        """Start everything; returns the one-time sign-in link. Raises ServerFailed."""
        self.env = {
            "DJANGO_SETTINGS_MODULE": "console.settings",
            "DIOGENES_DATA": str(self.folder.path),
            "DIOGENES_SECRET_KEY": os.environ.get("DIOGENES_SECRET_KEY") or self.folder.secret_key(),
            "DIOGENES_METRICS_TOKEN": os.environ.get("DIOGENES_METRICS_TOKEN") or self.folder.metrics_token(),
            "DIOGENES_LOG": os.environ.get("DIOGENES_LOG") or "json",
            "DIOGENES_DEMO": "1" if with_demo else "0",
            "PYTHONUNBUFFERED": "1",
        }
        self.folder.note_base_url(self.base_url)
        self._start_database()
        self._start_valkey()
        self.say("Database schema: migrating")
        processes.manage(self.env, "migrate", "--noinput", "--verbosity", "0")
        is_first = not self.folder.agent_token_file.exists()
        if is_first:  # before them: they would miss the agents' token
            processes.bootstrap(self.env, self.folder.agent_token_file)
        await_console = self._spawn_console()
        if not is_first:  # while they start: seconds count after a death
            processes.bootstrap(self.env, self.folder.agent_token_file)
        link = processes.manage(self.env, "signin_link").strip().splitlines()[-1]
        await_console()
        if with_demo:
            self._start_demo()
        return link

    def spawn(self, recipe: Recipe) -> Child:
        """Start one child with the stack's environment and note it."""
        known = Recipe(**{**vars(recipe), "env": {**self.env, **recipe.env}})
        child = start(known, self.folder.logs / f"{recipe.name}.log")
        self.children.append(child)
        self.folder.note_children(self.children)
        return child

    def replace(self, dead: Child) -> None:
        """Start a dead child again, in its old place."""
        child = start(dead.recipe, dead.log_path)
        self.children[self.children.index(dead)] = child
        self.folder.note_children(self.children)

    def stop(self) -> None:
        """Stop everything in reverse order; a child that does not listen is killed."""
        for child in reversed(self.children):
            child.stop()
        self.children.clear()

    def _start_database(self) -> None:
        if given := os.environ.get("DATABASE_URL"):
            return self._use_database(given)
        self.say("PostgreSQL: starting")
        account = servers.postgres_account()
        cluster = self.folder.path / "postgres"
        servers.prepare_postgres(cluster, account)
        child = self.spawn(servers.postgres_recipe(cluster, self.folder.runtime, account))
        servers.wait_for_postgres(child, self.folder.runtime)
        servers.ensure_database(self.folder.runtime)
        self.env["DATABASE_URL"] = servers.database_url(self.folder.runtime)

    def _use_database(self, url: str) -> None:
        self.say("PostgreSQL: using DATABASE_URL")
        try:
            psycopg.connect(url, connect_timeout=5).close()
        except psycopg.Error as error:
            reason = str(error).strip().splitlines()[0]
            raise ServerFailed(f"The database named by DATABASE_URL does not answer: {reason}") from None

    def _start_valkey(self) -> None:
        if given := os.environ.get("REDIS_URL"):
            return self._use_redis(given)
        self.say("Valkey: starting")
        child = self.spawn(servers.valkey_recipe(self.folder.path / "valkey", self.folder.runtime))
        servers.wait_for_valkey(child, self.folder.runtime)
        self.env["REDIS_URL"] = servers.redis_url(self.folder.runtime)

    def _use_redis(self, url: str) -> None:
        self.say("Valkey: using REDIS_URL")
        try:
            with redis.Redis.from_url(url, socket_connect_timeout=5) as client:
                client.ping()
        except (redis.RedisError, ValueError) as error:
            raise ServerFailed(f"The server named by REDIS_URL does not answer: {error}") from None

    def _spawn_console(self) -> Callable[[], None]:
        """Start the console's processes; returns what waits until all of them are up, and raises ServerFailed."""
        self.say("Web, ingest, looks, urgent, worker and beat: starting")
        web = self.spawn(processes.web_recipe(self.port))
        numbers = range(1, processes.ingest_processes() + 1)
        ingests = [self.spawn(processes.ingest_recipe(self.ingest_port, number)) for number in numbers]
        recipes = processes.looks_recipe(), processes.urgent_recipe(), processes.worker_recipe()
        workers = [self.spawn(recipe) for recipe in recipes]
        beat = self.spawn(processes.beat_recipe(self.folder.path))

        def await_all() -> None:
            processes.wait_for_http(web, self.port)
            for ingest in ingests:
                processes.wait_for_http(ingest, self.ingest_port)
            for worker in workers:
                processes.wait_for_words(worker, processes.WORKER_IS_UP)
            processes.wait_for_words(beat, processes.BEAT_IS_UP)

        return await_all

    def _start_demo(self) -> None:
        self.say("Demo job: starting (a fault is injected about 30 s into it)")
        folder = self.folder.path / "demo"
        self.spawn(processes.demo_recipe(self.ingest_port, self.folder.agent_token_file, folder))
