"""A simulated fail-stop stops what it should, and today's triggers and rules find it from the batches alone."""

from __future__ import annotations

import pytest

from ingest.window import Window
from rca.diagnose import diagnose
from rca.findings import Component, Diagnosis
from rca.triggers.look import look
from rca.triggers.normal import Normal
from tests.nccl_instrument.simulate.jobs import EIGHT, SIXTY_FOUR, window_after


def diagnosed(window: Window) -> Diagnosis:
    seen = look(window, Normal())
    assert seen.symptoms, f"no symptom: {seen.held}"
    return diagnose(window, seen.symptoms[0])


@pytest.mark.parametrize("layout", [EIGHT, SIXTY_FOUR], ids=["8", "64"])
@pytest.mark.parametrize(
    ("name", "component"),
    [
        ("nic_down", Component.NIC),
        ("rank_frozen", Component.PROCESS),
        ("rank_killed", Component.PROCESS),
        ("stuck_before", Component.SOFTWARE),
        ("proxy_stuck", Component.PROXY),
    ],
)
def test_a_hang_is_found_where_it_began(name: str, component: Component, layout: object) -> None:
    found = diagnosed(window_after(name, layout, victim=5))  # type: ignore[arg-type]
    assert found.culprits == (5,)
    assert found.findings[0].component is component
