"""How far the suite `stages` is: its parts, some of them running beside each other, as one progress bar with a time left."""

from __future__ import annotations

import threading

from nccl_instrument.simulate.bar import Bar


class Progress:
    """expected: part → seconds that it is expected to take here. Any thread may tell."""

    def __init__(self, expected: dict[str, float]) -> None:
        self._expected, self._done = expected, dict.fromkeys(expected, 0.0)
        self._bar, self._lock = Bar(max(sum(expected.values()), 1.0), "s of work"), threading.Lock()

    def tell(self, part: str, share: float, what: str) -> None:
        """`share` of a part is done, and what was done last."""
        with self._lock:
            self._done[part] = min(max(share, 0.0), 1.0)
            self._bar.tell(sum(self._expected[one] * done for one, done in self._done.items()), what)

    def end(self) -> None:
        self._bar.end()
