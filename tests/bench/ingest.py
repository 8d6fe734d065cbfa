"""How many trace batches a second ingest stores, with client and database beside it on the same machine.

`python -m tests.bench.ingest` (about three minutes; `--seconds 10` for less). PostgreSQL as `manage.py up` runs it, with
fsync and synchronous_commit on, Valkey, the shipped ingest processes, and 1,250 nodes of 8 busy GPUs (ingest_load.py),
each on a connection of its own. Every acknowledged batch is counted in the database at the end.

`bare_inserts_per_s` is what the same database stores, in the same run, of the same bytes as single-commit INSERTs of one
bytea into a plain table, over as many connections as ingest commits on, so that commits share flushes there as well;
`bare_one_connection_per_s` is the same over one. `ratio` is batches_per_s to the former. When less is offered (`--rate`)
than could be stored, the ratio says so little: a higher rate tells how far it goes. `--jobs 1 --nodes 1250 --seconds 20`
is one job of 10,000 ranks: making its batches beforehand takes minutes, and a gigabyte for each minute that is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from console.supervisor import processes, servers
from console.supervisor.children import Child, Recipe, start
from tests.bench.ingest_batches import SECOND, patch, prepare
from tests.bench.ingest_load import Load, Told
from tests.eval.stack import free_port_pair

JOBS, NODES, RATE, SECONDS, WARM_UP_S = 10, 125, 1_300, 60, 5
JOIN_AT_ONCE = 256
COMMITTERS = 2  # of each ingest process (ingest/traces/committer.py, which needs Django)
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.ingest", description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--rate", type=float, default=RATE, help="batches offered a second")
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--nodes", type=int, default=NODES, help="of each job, 8 GPUs each")
    parser.add_argument("--folder", type=Path, help="where the database lies; must be on a disk, default: the system's")
    chosen = parser.parse_args()
    with Machine(chosen.folder) as machine:
        print(json.dumps(measure(machine, chosen)))


@dataclass
class Costs:
    """CPU seconds used so far by each party."""

    client: float
    ingest: float
    postgres: float

    def since(self, before: Costs) -> Costs:
        return Costs(self.client - before.client, self.ingest - before.ingest, self.postgres - before.postgres)


class Machine:
    """A database, Valkey and the ingest processes in a folder of their own, for as long as the `with` block lasts."""

    def __init__(self, parent: Path | None, n_ingests: int | None = None) -> None:
        self.n_ingests = processes.ingest_processes() if n_ingests is None else n_ingests
        self.folder = Path(tempfile.mkdtemp(prefix="dgb-", dir=parent))
        self.port = free_port_pair()
        self.children: list[Child] = []
        self.env = {
            "DATABASE_URL": servers.database_url(self.folder), "REDIS_URL": servers.redis_url(self.folder),
            "DJANGO_SETTINGS_MODULE": "console.settings", "DIOGENES_SECRET_KEY": "bench",
            "DIOGENES_DATA": str(self.folder / "var"),
        }  # fmt: skip

    def __enter__(self) -> Machine:
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for child in reversed(self.children):
            child.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self) -> None:
        say("PostgreSQL, Valkey and ingest: starting")
        account = servers.postgres_account()
        servers.prepare_postgres(self.folder / "pg", account)
        database = self._spawn(servers.postgres_recipe(self.folder / "pg", self.folder, account))
        servers.wait_for_postgres(database, self.folder)
        servers.ensure_database(self.folder)
        servers.wait_for_valkey(self._spawn(servers.valkey_recipe(self.folder / "valkey", self.folder)), self.folder)
        processes.manage(self.env, "migrate", "--noinput", "--verbosity", "0")
        processes.bootstrap(self.env, self.folder / "token")
        self.token = (self.folder / "token").read_text().strip()
        numbers = range(1, self.n_ingests + 1)
        self.ingests = [self._spawn(processes.ingest_recipe(self.port, number)) for number in numbers]
        for ingest in self.ingests:
            processes.wait_for_http(ingest, self.port)
        time.sleep(3 if self.ingests else 0)  # they answer one for another

    def _spawn(self, recipe: Recipe) -> Child:
        known = Recipe(**{**vars(recipe), "env": {**self.env, **recipe.env}})
        self.children.append(start(known, self.folder / f"{recipe.name}.log"))
        return self.children[-1]

    def connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.env["DATABASE_URL"], autocommit=True)

    def durability(self) -> dict[str, str]:
        with self.connect() as connection:
            names = ("fsync", "synchronous_commit", "full_page_writes")
            return {name: str(connection.execute(f"SHOW {name}").fetchone()[0]) for name in names}  # type: ignore[index]

    def costs(self) -> Costs:
        ingest = sum(cpu_s(child.pid) for child in self.ingests)
        return Costs(time.process_time(), ingest, tree_cpu_s(self.children[0].pid))

    def memory_mb(self) -> float:
        return max(int(_status(child.pid, "VmHWM")) / 1024 for child in self.ingests)


def measure(machine: Machine, chosen: argparse.Namespace) -> dict[str, Any]:
    durability = machine.durability()
    if durability["fsync"] != "on" or durability["synchronous_commit"] != "on":
        raise SystemExit(f"this would measure nothing: {durability}")
    step_ns = int(chosen.jobs * chosen.nodes / chosen.rate * SECOND)
    n_laps = int((chosen.seconds + WARM_UP_S) * chosen.rate / (chosen.jobs * chosen.nodes)) + 2
    say(f"preparing {chosen.nodes * n_laps} batches")
    prepared = prepare(chosen.nodes, n_laps, step_ns)
    load = Load(machine.port, machine.token, prepared, chosen.jobs, step_ns)
    say(f"{len(load.nodes)} nodes of {chosen.jobs} jobs join")
    joining, joined_s = machine.costs(), load.introduce(JOIN_AT_ONCE)
    joining = machine.costs().since(joining)
    say(f"joined in {joined_s:.1f} s; {chosen.rate:.0f} batches/s for {WARM_UP_S} + {chosen.seconds:.0f} s")
    load.send(chosen.rate, WARM_UP_S, lambda told, at: None)
    before = machine.costs()
    seconds = load.send(chosen.rate, chosen.seconds, report)
    used, told = machine.costs().since(before), load.told
    n_acknowledged = sum(node.lap for node in load.nodes)
    load.close()
    n_stored = count_stored(machine)
    body = b"".join(patch(prepared[1][1], 0, 1, 0, (1, 1)))
    say("bare single-commit inserts of the same bodies")
    bare = bare_inserts_per_s(machine, body, COMMITTERS * len(machine.ingests), min(10.0, chosen.seconds))
    alone = bare_inserts_per_s(machine, body, 1, min(5.0, chosen.seconds))
    return summary(told, seconds, used, bare) | {
        "bare_one_connection_per_s": round(alone, 1),
        "offered_per_s": chosen.rate, "nodes": len(load.nodes), "ingest_processes": len(machine.ingests),
        "acknowledged": n_acknowledged, "lost": n_acknowledged - n_stored, "joined_s": round(joined_s, 1),
        "join_cpu_ms_per_node": round((joining.ingest + joining.postgres) / len(load.nodes) * 1e3, 2),
        "jobs": chosen.jobs, "sums_per_10_s": sums_per_10_s(machine),
        "ingest_mb": round(machine.memory_mb(), 1), **durability,
    }  # fmt: skip


def summary(told: Told, seconds: float, used: Costs, bare: float) -> dict[str, Any]:
    latencies, n = sorted(told.latencies), len(told.latencies)
    rate = n / seconds
    table = {
        "batches/s": f"{rate:.0f}", "p50 ms": f"{latencies[n // 2] * 1e3:.1f}", "p99 ms": f"{latencies[n * 99 // 100] * 1e3:.1f}",
        "bare inserts/s": f"{bare:.0f}", "ratio": f"{rate / bare:.2f}", "bytes/batch": f"{told.body_bytes / n:.0f}",
        "client ms/batch": f"{used.client / n * 1e3:.3f}", "ingest ms/batch": f"{used.ingest / n * 1e3:.3f}",
        "postgres ms/batch": f"{used.postgres / n * 1e3:.3f}",
    }  # fmt: skip
    for name, value in table.items():
        print(f"{name:>20}  {value}", flush=True)
    return {
        "bench": "ingest", "cores": os.cpu_count(), "batches_per_s": round(rate, 1),
        "p50_ms": round(latencies[n // 2] * 1e3, 1), "p99_ms": round(latencies[n * 99 // 100] * 1e3, 1),
        "bare_inserts_per_s": round(bare, 1), "ratio": round(rate / bare, 3), "seconds": round(seconds, 1),
        "bytes_per_batch": round(told.body_bytes / n), "resends": told.resends, "broken_connections": told.broken,
        "refused": {str(status): count for status, count in told.answers.items() if status != 200},
        "client_cores": round(used.client / seconds, 3), "ingest_cores": round(used.ingest / seconds, 3),
        "postgres_cores": round(used.postgres / seconds, 3),
        "ingest_cpu_ms_per_batch": round(used.ingest / n * 1e3, 3),
        "postgres_cpu_ms_per_batch": round(used.postgres / n * 1e3, 3),
    }  # fmt: skip


def report(told: Told, at: float) -> None:
    n = max(len(told.latencies), 1)
    refused = sum(count for status, count in told.answers.items() if status != 200)
    say(
        f"{at:4.0f} s  {n / at:7.0f} batches/s  p99 {sorted(told.latencies)[n * 99 // 100] * 1e3:.0f} ms  refused {refused}"
    )


def count_stored(machine: Machine) -> int:
    with machine.connect() as connection:
        row = connection.execute("SELECT count(*) FROM ingest_trace_batch").fetchone()
        assert row
        return int(row[0])


def sums_per_10_s(machine: Machine) -> int:
    """Of how many communicators and kinds of op there are sums for ten seconds, the fullest ten."""
    sums = "SELECT bucket_ns, count(DISTINCT (attempt_id, comm_id, func)) AS n FROM ingest_oprollup GROUP BY 1"
    with machine.connect() as connection:
        row = connection.execute(f"SELECT coalesce(max(n), 0) FROM ({sums}) buckets").fetchone()
        assert row
        return int(row[0])


def bare_inserts_per_s(machine: Machine, body: bytes, n_connections: int, seconds: float) -> float:
    with machine.connect() as connection:
        connection.execute("DROP TABLE IF EXISTS bare")
        connection.execute("CREATE TABLE bare (received_at timestamptz, node_id bigint, number bigint, body bytea)")
        connection.execute("ALTER TABLE bare ALTER body SET STORAGE EXTERNAL")
    (machine.folder / "body").write_bytes(body)
    argv = [sys.executable, "-m", "tests.bench.ingest_bare", machine.env["DATABASE_URL"], str(seconds)]
    argv.append(str(machine.folder / "body"))
    inserting = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for _ in range(n_connections)]
    return sum(float(process.communicate()[0]) for process in inserting)


def cpu_s(pid: int) -> float:
    """Of a process, and of those it started that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(ticks) for ticks in fields[11:15]) / CLOCK_TICKS


def tree_cpu_s(pid: int) -> float:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    total = cpu_s(pid)
    for child in children:
        try:
            total += cpu_s(int(child))
        except FileNotFoundError:
            continue
    return total


def _status(pid: int, name: str) -> str:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith(name + ":"))


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main()
