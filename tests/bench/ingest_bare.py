"""Single-commit inserts of one body into a plain table over one connection: what ingest is measured against.

`python -m tests.bench.ingest_bare URL SECONDS FILE` prints how many a second. A process of its own, so that several do
not wait for one interpreter.
"""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import psycopg

INSERT = "INSERT INTO bare (received_at, node_id, number, body) VALUES (%s, %s, %s, %s)"


def main() -> None:
    url, seconds, body = sys.argv[1], float(sys.argv[2]), Path(sys.argv[3]).read_bytes()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = on")
        n, began = 0, time.monotonic()
        while time.monotonic() - began < seconds:
            connection.execute(INSERT, (datetime.now(UTC), n % 1250, n, body), binary=True)
            n += 1
        print(n / (time.monotonic() - began))


if __name__ == "__main__":
    main()
