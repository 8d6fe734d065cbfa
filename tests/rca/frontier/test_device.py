"""Sampled device time tells what the host cannot see, and is believed only of ranks whose own samples came back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rca.frontier.labels import label
from rca.frontier.report import DeviceEvents, Label
from tests.rca.frontier.test_labels import BACKWARD, FORWARD_AT, ddp, stalled

SUPPORTED, HOST = Label.FORWARD_DEVICE_SUPPORTED, Label.FORWARD_HOST_OVERHEAD_SUSPECTED
SPILLS, LIMITED = Label.FORWARD_SPILLOVER_SUSPECTED, Label.FORWARD_EVENT_SCOPE_LIMITED


def events(slow_s: float, *, ready: int = 12, slow_ready: int = 12, asked: int = 12, **of: Any) -> DeviceEvents:
    """Eight ranks whose forward takes 55 ms on the device, rank 3's takes slow_s."""
    mean_s, n = np.full(8, 0.055), np.full(8, ready)
    mean_s[3], n[3] = slow_s, slow_ready
    mean_s[n == 0] = np.nan
    return DeviceEvents(mean_s, n, np.full(8, asked), **of)


def said(window: Any) -> set[Label]:
    return {one for one in label(window).labels if one.value.startswith("forward_")}


@pytest.mark.parametrize(
    ("stage", "told", "expected"),
    [
        (FORWARD_AT, events(0.35), {SUPPORTED}),
        (BACKWARD, events(0.35), {SUPPORTED, SPILLS}),
        (FORWARD_AT, events(0.06), {HOST}),
        (FORWARD_AT, events(0.35, ready=1, slow_ready=1), {LIMITED}),
        (FORWARD_AT, events(0.35, ready=6, slow_ready=6), {LIMITED}),
        (FORWARD_AT, events(0.35, is_scope_limited=True), {LIMITED}),
    ],
)
def test_sampled_device_time_tells_what_the_host_cannot_see(
    stage: int, told: DeviceEvents, expected: set[Label]
) -> None:
    assert said(stalled(stage, 0.12, fits_wait_model=True, events=told)) == expected


def test_without_samples_of_the_slow_rank_or_of_the_others_nothing_is_said_of_the_device() -> None:
    for told in (events(0.35, slow_ready=0), events(0.35, slow_ready=3), events(0.35, ready=0)):
        assert said(stalled(FORWARD_AT, 0.12, fits_wait_model=True, events=told)) == {LIMITED}


@pytest.mark.parametrize(("device_s", "expected"), [(0.3, SUPPORTED), (0.02, HOST)])
def test_a_forward_that_is_long_on_all_ranks_is_judged_by_how_busy_their_devices_are(
    device_s: float, expected: Label
) -> None:
    window = ddp(events=DeviceEvents(np.full(8, device_s), np.full(8, 12), np.full(8, 12)))
    assert said(window) == set()  # forward does not lead: nothing to explain
    window.durations[:, :, FORWARD_AT] += 0.3
    assert said(window) == {expected}
