"""Destinations in the browser: an administrator makes one, tests it, sees why it failed and replays; a phone shows the same."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings
from playwright.sync_api import Page, expect

from console.incidents.models import ActorKind
from console.incidents.record import Actor
from console.tickets.acts import change_destination, make_destination
from console.tickets.models import Destination
from console.tickets.sender import send_due
from ingest.models import Team
from tests.browser.conftest import PHONE, OpenAs
from tests.browser.stack import Stack
from tests.browser.test_accessibility import violations_in_both_themes
from tests.console.tickets.places import Place, place

pytestmark = pytest.mark.browser
PICTURES = os.environ.get("PICTURES")


@pytest.fixture
def pagerduty(monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    with place(lambda asked: (400, {}, {"message": "invalid routing key"})) as here:
        monkeypatch.setattr(settings, "TICKETS_HOSTS", {here.name})
        yield here


def picture(page: Page, name: str) -> None:
    if PICTURES:
        page.screenshot(path=str(Path(PICTURES) / f"{name}.png"), full_page=True)


def test_a_destination_is_made_tested_and_its_failure_replayed(stack: Stack, open_as: OpenAs, pagerduty: Place) -> None:
    page = open_as("ada", "/destinations")
    expect(page.get_by_text("Nobody is told yet.")).to_be_visible()
    page.get_by_role("button", name="New destination").click()
    page.get_by_label("Name").fill("on duty")
    page.get_by_label("Integration key").fill("short")
    page.get_by_label("Address").fill(pagerduty.url)
    page.get_by_role("button", name="Make").click()
    expect(page.get_by_role("alert")).to_contain_text("32 letters")
    picture(page, "dialog-light")
    page.get_by_label("Integration key").fill("k" * 32)
    page.get_by_text("Wording of title").click()
    page.get_by_label("Title").fill("{job} is {stat")
    expect(page.get_by_text("a brace stands alone")).to_be_visible()
    page.get_by_label("Title").fill("{job} is {state}")
    expect(page.locator(".template-preview b")).to_have_text("llama-70b is open")
    picture(page, "dialog-wording")
    page.get_by_role("button", name="Make").click()
    page.get_by_role("button", name="Test on duty").click()
    row = page.locator("section[aria-labelledby=deliveries]").locator("tbody tr").first
    expect(row).to_contain_text("waiting")
    stack.do(send_due)
    expect(row).to_contain_text("invalid routing key")
    pagerduty.answer = lambda asked: (202, {}, {})
    row.get_by_role("button", name="Replay").click()
    expect(row).to_contain_text("waiting")
    stack.do(send_due)
    expect(row).to_contain_text("sent")
    assert "k" * 32 not in page.content()
    assert any("test is open" in one.body.decode() for one in pagerduty.asked)
    page.get_by_role("button", name="History of on duty").click()
    expect(page.get_by_role("dialog").get_by_text("routing key")).to_be_visible()
    picture(page, "dialog-history")
    page.get_by_role("button", name="Close").click()
    picture(page, "page-dark")
    page.reload()  # without the passing notices
    expect(row).to_contain_text("sent")
    assert violations_in_both_themes(page) == []
    phone = open_as("rita", "/destinations", viewport=PHONE)
    expect(phone.get_by_text("on duty").first).to_be_visible()
    expect(phone.get_by_role("button", name="New destination")).to_have_count(0)
    picture(phone, "phone-light")
    assert phone.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_two_administrators_at_one_destination_see_each_others_changes(stack: Stack, open_as: OpenAs) -> None:
    def made() -> Destination:
        team = Team.objects.get()
        return make_destination(team.pk, "on duty", "pagerduty", {"routing_key": "k" * 32}, "ada", "low")

    destination = stack.do(made)
    page = open_as("ada", "/destinations")
    page.get_by_role("button", name="Change on duty").click()
    page.get_by_label("Name").fill("nights")
    stack.do(lambda: change_destination(destination, {"severity_min": "high"}, Actor("grace", ActorKind.USER)))
    page.get_by_role("dialog").get_by_role("button", name="Change").click()
    expect(page.get_by_role("alert")).to_contain_text("grace changed it meanwhile (severity min)")
    picture(page, "dialog-overtaken")
    page.get_by_role("dialog").get_by_role("button", name="Change").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_role("button", name="Change nights")).to_be_visible()
    page.get_by_role("button", name="Remove nights").click()
    page.get_by_role("button", name="Really remove nights").click()
    expect(page.get_by_text("Nobody is told yet.")).to_be_visible()
