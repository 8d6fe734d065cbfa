"""Hands a cut from the sweep to the uplink so that a kill at any moment neither loses nor repeats a record.

The batches are set aside on disk, the bookmarks that go with them replace the older ones, and only then the uplink may
send. No fsync: a killed process leaves its writes in the page cache, and after a power cut the segments are gone too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from nccl_instrument.agent.processes.trainer import Bookmark
from nccl_instrument.agent.sending.bookmarks import save_bookmarks
from nccl_instrument.agent.sending.losses import Losses
from nccl_instrument.agent.sending.spool import Spool

Offer = Callable[[str, bytes, str], None]


class Handover:
    """`offer(job, encoded, name)` gets every batch; `name` is its name in the spool, '' where the disk refused it."""

    def __init__(self, spool: Spool, losses: Losses, offer: Offer) -> None:
        self._spool, self._losses, self._offer = spool, losses, offer

    def __call__(self, cut: Sequence[tuple[str, bytes]], bookmarks: Mapping[str, Bookmark]) -> None:
        """`cut` holds (job, encoded batch) for each job."""
        names = [self._set_aside(encoded) for _, encoded in cut]
        save_bookmarks(self._spool.folder, bookmarks, self._spool.number)
        for (job, encoded), name in zip(cut, names, strict=True):
            is_stored = bool(name) and self._spool.settle(name, len(encoded))
            self._offer(job, encoded, name if is_stored else "")

    def _set_aside(self, encoded: bytes) -> str:
        name, gone = self._spool.set_aside(encoded)
        for lost in gone:
            self._losses.add_batch(lost, "spool_batches")
        return name
