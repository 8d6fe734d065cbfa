"""Rank, node and job pages and ad-hoc questions in the browser: reached by links, read by everybody, on a phone too."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from console.incidents.models import Incident
from ingest.models import OpRollup
from ingest.sums.rollup import BUCKET_NS
from tests.browser.conftest import PHONE, OpenAs
from tests.browser.stack import Stack
from tests.browser.test_accessibility import violations_in_both_themes

pytestmark = pytest.mark.browser
PICTURES = os.environ.get("PICTURES")


def picture(page: Page, name: str) -> None:
    if PICTURES:
        page.screenshot(path=str(Path(PICTURES) / f"{name}.png"), full_page=True)


@pytest.fixture
def incident(stack: Stack) -> Incident:
    return stack.stalling_job()


def fits(page: Page) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth <= innerWidth"))


def test_from_an_incident_to_its_rank_its_node_and_the_other_ranks(
    stack: Stack, incident: Incident, open_as: OpenAs
) -> None:
    page = open_as("vera", f"/incidents/{incident.pk}")
    page.get_by_role("link", name="Page of rank 3").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Rank 3")
    expect(page.get_by_role("link", name=f"#{incident.pk}", exact=True).first).to_be_visible()
    expect(page.locator(".js-plotly-plot").first).to_be_visible()
    assert violations_in_both_themes(page) == []
    picture(page, "rank-dark")
    page.get_by_role("link", name="rank 2", exact=True).click()
    expect(page.locator(".standing-still").first).to_be_visible()
    page.get_by_role("link", name="node-1", exact=True).first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("node-1")
    expect(page.get_by_text("Incidents that began here")).to_be_visible()
    expect(page.locator(".calendar .one").first).to_be_visible()
    assert violations_in_both_themes(page) == []
    picture(page, "node-dark")
    for path, name in ((f"/jobs/{incident.job_id}/ranks/2", "rank-phone"), ("/nodes/node-1", "node-phone")):
        phone = open_as("vera", path, viewport=PHONE)
        expect(phone.get_by_role("heading", level=1)).to_be_visible()
        expect(phone.get_by_role("heading", name="Blamed")).to_be_visible()
        picture(phone, name)
        assert fits(phone)


def test_a_job_over_time_and_every_look(stack: Stack, incident: Incident, open_as: OpenAs) -> None:
    stack.do(rolled_up, incident)
    page = open_as("vera", f"/jobs/{incident.job_id}")
    over_time = page.locator("section[aria-labelledby=over-time]")
    expect(over_time.get_by_text("Bus bandwidth by kind of op in the last 30 minutes", exact=False)).to_be_visible()
    over_time.get_by_role("button", name="1 day").click()
    expect(over_time.get_by_text("in the last 24 hours", exact=False).first).to_be_visible()
    assert "span=1440" in page.url
    expect(page.get_by_label("only looks that saw something")).to_be_visible()
    expect(page.get_by_text("Ops in progress", exact=False).first).to_be_visible()
    page.get_by_label("only looks that saw something").check()
    expect(page.get_by_text("Looks are kept for two days", exact=False)).to_be_visible()
    assert violations_in_both_themes(page) == []
    picture(page, "job-dark")
    phone = open_as("vera", f"/jobs/{incident.job_id}", viewport=PHONE)
    expect(phone.get_by_role("heading", name="Trace loss")).to_be_visible()
    picture(phone, "job-phone")
    assert fits(phone)
    nodes = open_as("vera", "/nodes")
    expect(nodes.get_by_role("heading", name="Blamed in thirty days")).to_be_visible()
    picture(nodes, "nodes-light")
    assert violations_in_both_themes(nodes) == []


def rolled_up(incident: Incident) -> None:
    """As ingest's own process writes it: its tests are elsewhere."""
    for at in range(1, 20):
        OpRollup.objects.create(
            attempt=incident.attempt, comm_id=-0x0FFF_FFFF_FFFF_FFFF, func=5, part=at, n_ops=80, n_timed=80, bytes=80 * 10**9,
            bucket_ns=(incident.first_symptom_ns // BUCKET_NS - at) * BUCKET_NS, bytes_timed=80 * 10**9,
            duration_sum_ns=80 * (50 + at % 5) * 10**6, duration_max_ns=60_000_000,
        )  # fmt: skip


def test_a_question_is_asked_answered_taken_away_and_sent_as_a_link(
    stack: Stack, incident: Incident, open_as: OpenAs, tmp_path: Path
) -> None:
    stack.do(rolled_up, incident)
    page = open_as("vera", "/")
    page.get_by_text("More", exact=True).click()
    page.locator(".more-pages").get_by_role("link", name="Questions").click()
    page.get_by_label("Show").select_option("bandwidth")
    expect(page.locator("section[aria-labelledby=answer] .js-plotly-plot")).to_be_visible()
    expect(page.get_by_text("bandwidth in GB/s", exact=False)).to_be_visible()
    picture(page, "question-light")
    page.get_by_label("per", exact=True).select_option("rank")
    page.get_by_label("Show").select_option("ops")
    page.get_by_label("over").select_option("120")
    expect(page.get_by_role("columnheader", name="rank", exact=False).first).to_be_visible()
    expect(page.get_by_text("Traces:", exact=False)).to_be_visible()
    body = page.locator("table tbody tr")
    expect(body).to_have_count(8)
    assert violations_in_both_themes(page) == []
    picture(page, "question-dark")
    file = downloaded(page, lambda: page.get_by_role("button", name="CSV").click(), tmp_path / "a.csv")
    rows = list(csv.reader(file.open()))
    assert rows[0][0] == "rank" and len(rows) == 9
    parquet = downloaded(page, lambda: page.get_by_role("button", name="Parquet").click(), tmp_path / "a.parquet")
    assert parquet.read_bytes()[:4] == b"PAR1"
    colleague = open_as("rita", page.url.removeprefix(stack.server.url), viewport=PHONE)
    expect(colleague.locator("table tbody tr")).to_have_count(8)
    expect(colleague.get_by_label("per", exact=True)).to_have_value("rank")
    picture(colleague, "question-phone")
    assert fits(colleague)


def downloaded(page: Page, click: Callable[[], Any], path: Path) -> Path:
    with page.expect_download() as taken:
        click()
    taken.value.save_as(path)
    return path
