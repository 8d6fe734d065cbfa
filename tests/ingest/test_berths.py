"""What a berth remembers of what was said: tables as a whole, and row by row."""

from __future__ import annotations

import numpy as np
import pytest

from ingest.jobs import berths
from ingest.jobs.berths import says_something_new
from tests.builders import FakeJob, make_batch, with_rows
from tests.ingest.conftest import Ingest


async def test_a_table_that_was_heard_before_is_not_looked_through(
    ingest: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = FakeJob()
    assert (await ingest.send(job.batch())).status == 200
    monkeypatch.setattr(berths, "_said", lambda rows: pytest.fail("row by row"))
    assert (await ingest.send(job.batch(number=1))).status == 200


async def test_rows_that_were_heard_in_another_table_are_nothing_new(ingest: Ingest) -> None:
    batch = make_batch()
    await ingest.send(batch)
    (berth,) = (await ingest.application.server()).committer.berths._known.values()
    rows = batch.rows("comm")
    for known in (rows[::-1], rows[:1]):
        assert not says_something_new(berth, with_rows(batch, comm=known))
    other = rows.copy()
    other["name"] = b"new"
    assert says_something_new(berth, with_rows(batch, comm=np.concatenate([rows, other])))
