"""What takes too long is cut off once, what does not is left alone, and one thread does for many."""

from __future__ import annotations

import threading

from nccl_instrument.agent.sending.watchdog import Watchdog


def watching() -> set[threading.Thread]:
    return {one for one in threading.enumerate() if one.name == "watchdog"}


def test_what_takes_too_long_is_cut_off_once() -> None:
    bitten = threading.Semaphore(0)
    watchdog = Watchdog(0.01, 0.01, bitten.release)
    with watchdog.guarding():
        assert bitten.acquire(timeout=30)
        assert not bitten.acquire(timeout=0.1)
    with watchdog.guarding():  # and the next one is guarded too
        assert bitten.acquire(timeout=30)


def test_what_ends_in_time_is_left_alone_by_one_thread_that_then_ends() -> None:
    bitten = threading.Semaphore(0)
    watchdog = Watchdog(3600, 0.01, bitten.release)
    others, ours = watching(), set[threading.Thread]()
    for _ in range(100):
        with watchdog.guarding():
            new = watching() - others - ours
            assert sum(one.is_alive() for one in ours) < 10  # one, and what is just ending
            ours |= new
    for thread in ours:
        thread.join(30)
        assert not thread.is_alive()
    assert not bitten.acquire(blocking=False)
