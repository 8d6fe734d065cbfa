"""The grid's colours in a real browser: each layer is chosen, read, told in words, and kept in the address."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from django.db.models import F
from playwright.sync_api import Locator, Page, expect

from console.dumps.models import DumpSummary
from console.incidents.models import Incident
from console.stages.models import StageCursor, StagePacket
from console.stages.store import store_packet
from ingest.models import Attempt, DumpRequest, Rank
from nccl_instrument.dumps import STACKS
from rca.frontier.lateness import pack_lateness
from tests.browser.conftest import PHONE, OpenAs
from tests.browser.stack import Stack
from tests.browser.test_accessibility import violations

pytestmark = pytest.mark.browser
CULPRIT = 3
SECOND = 1_000_000_000


def told(incident: Incident) -> None:
    """Stacks and a window of stages of the job, as workers keep them; of rank 7 no stacks came."""
    Rank.objects.filter(attempt=incident.attempt_id).update(nic="eth0")  # of two NICs a node has
    Attempt.objects.filter(pk=incident.attempt_id).update(roster_version=F("roster_version") + 1)
    at_ns = incident.triggered_ns
    at = datetime.fromtimestamp(at_ns / 1e9, UTC)
    many = {
        "kind": "trainer",
        "said": "in a collective: all_reduce",
        "is_wait": True,
        "ranks": [0, 1, 2, 4, 5, 6],
        "count": 6,
    }
    odd = {"kind": "trainer", "said": "data loader: __next__", "is_wait": False, "ranks": [CULPRIT], "count": 1}
    silent = [{"rank": 7, "node": "node-3", "kind": "stacks", "why": "its node has not answered"}]
    request = DumpRequest.objects.filter(attempt=incident.attempt_id).latest("pk")
    assert STACKS in request.kinds
    DumpSummary.objects.update_or_create(
        request=request,
        defaults={"n_answers": 3, "made_at": at, "took_s": 0.1, "taken_ns": at_ns,
                  "stacks": {"groups": [many, odd], "silent": silent, "silent_count": 1, "left_out": 0}},
    )  # fmt: skip
    late = pack_lateness("data.next_wait", tuple(range(8)), np.array([0, 0.4, -0.2, 212.5, 0, 0.1, -0.4, 0]))
    body = {"late": late, "end_ns": at_ns, "report": {"step_s": 0.31}}
    StageCursor.objects.update_or_create(attempt_id=incident.attempt_id, defaults={"is_empty": False})
    store_packet(
        StagePacket(
            attempt_id=incident.attempt_id, ended_at=at, start_ns=at_ns - SECOND, end_ns=at_ns, first_step=1, last_step=9,
            n_ranks=8, verdict="routed", step_s=0.31, lasting_s=0.31, error_s=0.0, body=body,
        )
    )  # fmt: skip


def choose(page: Page, word: str) -> None:
    page.get_by_role("combobox", name="Colour by").select_option(label=word)


def legend(page: Page) -> Locator:
    return page.locator(".layer-legend")


def seen(page: Page, name: str) -> None:
    """Kept for whoever wants to look: DIOGENES_PICTURES names a folder."""
    if folder := os.environ.get("DIOGENES_PICTURES"):
        page.locator("section:has(#topology)").screenshot(path=Path(folder) / f"{name}.png")


SAID = {
    "Op lag": ("op_lag", "most 1 op", "1 op behind, in dp0"),
    "Stack class": ("stack_class", "data loader: __next__", "data loader: __next__"),
    "Bandwidth": ("bandwidth", "median 0 B/s", "0 B/s"),
    "Stage lateness": ("stage_lateness", "most 213 ms", "213 ms late, at the end of data.next_wait"),
}


@pytest.mark.parametrize(("theme", "viewport"), [("light", None), ("dark", PHONE)])
def test_each_layer_is_chosen_and_says_of_the_culprit_what_it_found(
    stack: Stack, open_as: OpenAs, theme: str, viewport: dict[str, int] | None
) -> None:
    incident = stack.stalling_job()
    stack.do(told, incident)
    page = open_as("rita", f"/incidents/{incident.pk}", theme=theme, viewport=viewport)
    expect(page.get_by_role("list", name="States of the ranks")).to_contain_text("Culprit 1")
    for word, (by, in_legend, of_culprit) in SAID.items():
        choose(page, word)
        expect(page).to_have_url(re.compile(f"[?&]colour={by}"))
        expect(legend(page)).to_contain_text(in_legend)
        expect(legend(page)).to_contain_text("Culprit 1")
        expect(legend(page)).to_contain_text(re.compile(r"As at \d\d:\d\d:\d\d"))
        grid = page.get_by_role("grid")
        grid.focus()
        page.keyboard.press("Home")
        for _ in range(CULPRIT):
            page.keyboard.press("ArrowRight")
        expect(page.locator("[role=gridcell]")).to_have_text(re.compile(f"^Rank 3, .*{word} {re.escape(of_culprit)}"))
        expect(page.locator(".tooltip")).to_contain_text(of_culprit)
        seen(page, f"{by}-{theme}")
        page.get_by_role("heading", name="Topology").click()
    assert violations(page) == []


def test_the_table_has_the_layers_column_and_the_address_brings_it_back(stack: Stack, open_as: OpenAs) -> None:
    incident = stack.stalling_job()
    stack.do(told, incident)
    page = open_as("vera", f"/incidents/{incident.pk}?colour=stack_class&grid=table")
    rows = page.locator("section:has(#topology) tbody tr")
    expect(rows.first).to_contain_text("data loader: __next__")
    expect(rows.last).to_contain_text("unknown: its node has not answered")
    choose(page, "State")
    expect(page.get_by_role("list", name="States of the ranks")).to_contain_text("Culprit 1")
    assert "colour=" not in page.url


def test_at_an_earlier_moment_the_layer_is_of_that_moment(stack: Stack, open_as: OpenAs) -> None:
    incident = stack.stalling_job()
    before_ms = incident.first_symptom_ns // 10**6 - 1500
    page = open_as("rita", f"/incidents/{incident.pk}?colour=op_lag&at={before_ms}")
    expect(legend(page)).to_contain_text("most 0 ops")
    page.get_by_role("button", name=re.compile("Back to")).first.click()
    expect(legend(page)).to_contain_text("most 1 op")


def test_where_nothing_was_measured_it_says_why(stack: Stack, open_as: OpenAs) -> None:
    incident = stack.stalling_job()
    page = open_as("vera", f"/incidents/{incident.pk}?colour=stage_lateness")
    expect(legend(page)).to_contain_text("No stages are recorded.")
    expect(legend(page)).to_contain_text("Unknown 8")
