"""The whole workflow in a browser: two responders and a viewer, marks and bulk, silences, palette, review and scorecard."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from playwright.sync_api import Page, expect

from console.accounts.models import Membership, Role
from console.incidents.models import Incident
from ingest.models import Attempt, Job, Team
from tests.browser.conftest import DESKTOP, PHONE, OpenAs
from tests.browser.stack import Stack, session_of
from tests.browser.test_accessibility import violations_in_both_themes
from tests.console.incidents.making import make_incident

pytestmark = pytest.mark.browser


def make_incidents(n: int) -> list[int]:
    """Incidents of jobs of their own, as when one switch troubles many."""
    team, now = Team.objects.get(name="training"), timezone.now()
    made = []
    for k in range(n):
        job = Job.objects.create(team=team, name=f"job-{k}")
        attempt = Attempt.objects.create(job=job, number=0, started_at=now, last_received_at=now)
        made.append(make_incident(attempt, key=f"v1:{k}", headline=f"Suspected hang of job {k}").pk)
    return made


def another_responder(stack: Stack, name: str) -> None:
    user = User.objects.create(username=name)
    Membership.objects.create(user=user, team=Team.objects.get(name="training"), role=Role.RESPONDER)
    stack.cookies[name] = session_of(user)


@pytest.mark.parametrize(("viewport", "theme"), [(DESKTOP, "dark"), (PHONE, "light")], ids=["desktop", "phone"])
def test_two_responders_and_a_viewer_from_page_to_review(
    stack: Stack, open_as: OpenAs, viewport: Any, theme: str
) -> None:
    stack.do(another_responder, stack, "olaf")
    (number,) = stack.do(make_incidents, 1)
    rita, olaf, vera = (
        open_as(name, f"/incidents/{number}?tab=activity", viewport=viewport, theme=theme)
        for name in ("rita", "olaf", "vera")
    )
    expect(rita.locator(".looking")).to_contain_text(re.compile("olaf.*vera"))
    olaf.get_by_role("button", name="Acknowledge", exact=False).first.click()
    for page in (rita, vera):
        expect(page.locator(".incident-head .chip")).to_have_text("Acknowledged")
    vera.context.set_offline(True)
    _more(rita, "Assign …")
    rita.get_by_label("Assigned to").select_option("rita")
    rita.get_by_role("dialog").get_by_role("button", name="Assign").click()
    expect(olaf.locator(".incident-head")).to_contain_text("assigned to rita")
    _more(rita, "Silence …")
    dialog = rita.get_by_role("dialog")
    expect(dialog.locator(".preview")).to_contain_text("Silences 1 incident now")
    dialog.get_by_label("Why?").fill("new switch")
    dialog.get_by_role("button", name="Silence", exact=True).click()
    expect(olaf.locator(".incident-head")).to_contain_text(re.compile(r"silenced until \d\d:\d\d"))
    rita.get_by_role("button", name="Resolve").first.click()
    rita.get_by_label("What was done").fill("cable replaced")
    rita.get_by_role("dialog").get_by_role("button", name="Resolve").click()
    rita.get_by_role("button", name="What was it?").first.click()
    dialog = rita.get_by_role("dialog")
    dialog.get_by_label("Real trouble, worth telling").check()
    dialog.get_by_label("Wrong", exact=True).check()
    dialog.get_by_label("True cause").fill("the cable")
    dialog.get_by_role("button", name="Save").click()
    expect(rita.locator(".incident-head")).to_contain_text("afterwards: real, verdict wrong")
    vera.context.set_offline(False)
    expect(vera.locator(".live")).to_have_text("Live", timeout=30_000)
    expect(vera.locator(".incident-head .chip")).to_have_text("Resolved")
    expect(vera.locator(".timeline")).to_contain_text("the cable")
    assert _activity(vera) == _activity(rita)
    olaf.goto(f"{stack.server.url}/scorecard")
    expect(olaf.get_by_role("table", name="").first).to_be_visible()
    expect(olaf.locator(".score-facts")).to_contain_text("100 %")
    expect(olaf.locator("main")).to_contain_text("Too few reviews")


def _activity(page: Page) -> list[str]:
    """The entries without their ages."""
    return [re.sub(r"\s*(now|\d+ (s|min) ago)", "", text) for text in page.locator(".timeline li").all_inner_texts()]


def _more(page: Page, name: str) -> None:
    page.locator(".more-acts summary").click()
    page.locator(".more-acts").get_by_role("button", name=name).click()


def test_many_are_marked_and_acknowledged_by_keys_alone(stack: Stack, open_as: OpenAs) -> None:
    stack.do(make_incidents, 3)
    page = open_as("rita", "/incidents?state=open")
    expect(page.locator(".incident-list li")).to_have_count(3)
    for key in ("j", "x", "j", "x"):
        page.keyboard.press(key)
    expect(page.locator(".bulk-bar")).to_contain_text("2 incidents marked")
    page.keyboard.press("a")
    expect(page.locator(".incident-list li")).to_have_count(1)
    page.keyboard.press("X")
    page.keyboard.press("r")
    page.keyboard.type("the switch is new")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_text("No incident matches.")).to_be_visible()
    assert stack.do(lambda: sorted(Incident.objects.values_list("state", flat=True))) == [
        "acknowledged",
        "acknowledged",
        "resolved",
    ]


def test_what_could_not_be_done_to_one_of_many_is_told(stack: Stack, open_as: OpenAs) -> None:
    stack.do(make_incidents, 2)
    page = open_as("rita", "/incidents")
    page.get_by_label(re.compile("Mark incident")).first.check()
    page.get_by_label(re.compile("Mark incident")).last.check()
    page.get_by_role("button", name="Assign to me").click()
    expect(page.locator(".notice")).to_contain_text("2 incidents assigned")
    page.get_by_label("Handled by").select_option("rita")
    expect(page).to_have_url(re.compile("who=rita"))
    page.get_by_role("button", name="Save this view").click()
    page.get_by_label("Name").fill("mine")
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    page.goto(f"{stack.server.url}/incidents")
    page.get_by_role("navigation", name="Saved views").get_by_role("link", name="mine").click()
    expect(page).to_have_url(re.compile("who=rita"))


def test_the_palette_finds_and_does(stack: Stack, open_as: OpenAs) -> None:
    (number,) = stack.do(make_incidents, 1)
    page = open_as("rita", "/")
    palette = page.get_by_role("dialog")  # the page below it has options of its own
    page.keyboard.press("Control+k")
    page.keyboard.type(f"#{number}")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(f"/incidents/{number}$"))
    expect(page.get_by_role("button", name="Acknowledge").first).to_be_visible()
    page.keyboard.press("Control+k")
    page.keyboard.type("ack")
    expect(palette.get_by_role("option", selected=True)).to_contain_text("Acknowledge")
    page.keyboard.press("Enter")
    expect(page.locator(".incident-head .chip")).to_have_text("Acknowledged")
    page.keyboard.press("Control+k")
    page.keyboard.type("silence 2h")
    page.keyboard.press("Enter")
    expect(page.get_by_label("How long")).to_have_value("120")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("Control+k")
    page.keyboard.type("node r1n3")
    expect(palette.get_by_role("option").first).to_contain_text("Page of node r1n3")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(palette.get_by_role("option", selected=True)).to_contain_text("Maintenance of r1n3")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_contain_text("New maintenance")
    expect(page.get_by_label("Values 1")).to_have_value("r1n3")


def test_a_silence_is_previewed_made_listed_and_ended(stack: Stack, open_as: OpenAs) -> None:
    stack.do(make_incidents, 2)
    page = open_as("rita", "/silences")
    expect(page.get_by_text("Nothing is silenced.")).to_be_visible()
    page.keyboard.press("n")
    page.get_by_label("Values 1").fill("*")
    expect(page.get_by_role("dialog")).to_contain_text("This would silence everything")
    page.get_by_label("Values 1").fill("job-0, job-7")
    expect(page.locator(".preview")).to_contain_text("Silences 1 incident now")
    page.get_by_label("Why?").fill("its store is moved")
    page.get_by_role("dialog").get_by_role("button", name="Silence", exact=True).click()
    row = page.get_by_role("row", name=re.compile("job is job-0 or job-7"))
    expect(row).to_contain_text("its store is moved")
    expect(row).to_contain_text("1 incident")
    now = open_as("vera", "/")
    expect(now.locator(".incident-card")).to_have_count(1)
    expect(now.locator(".quiet-incidents")).to_contain_text("1 incident is silenced")
    page.get_by_role("button", name="End silence").click()
    page.get_by_role("dialog").get_by_role("button", name="End it").click()
    expect(page.get_by_role("heading", name="Over")).to_be_visible()
    expect(now.locator(".incident-card")).to_have_count(2)


def test_next_and_previous_stay_in_the_list_one_came_from(stack: Stack, open_as: OpenAs) -> None:
    numbers = stack.do(make_incidents, 3)
    page = open_as("rita", "/incidents?job=job-0,job-2")
    page.get_by_role("link", name="Suspected hang of job 2").click()
    page.get_by_role("link", name="Older incident").click()
    expect(page).to_have_url(re.compile(f"/incidents/{numbers[0]}\\?in="))
    expect(page.get_by_role("link", name="Newer incident")).to_be_visible()
    expect(page.get_by_role("link", name="Older incident")).to_have_count(0)
    page.keyboard.press("k")
    expect(page).to_have_url(re.compile(f"/incidents/{numbers[2]}\\?in="))


def test_axe_finds_nothing_in_what_is_new(stack: Stack, open_as: OpenAs) -> None:
    numbers = stack.do(make_incidents, 2)
    page = open_as("rita", "/incidents")
    page.get_by_label(re.compile("Mark incident")).first.check()
    found = {"marked": violations_in_both_themes(page)}
    page.goto(f"{stack.server.url}/incidents/{numbers[0]}")
    page.locator(".more-acts summary").click()
    found["more"] = violations_in_both_themes(page)
    for key, sign in (("s", ".preview"), ("m", "#assignee"), ("w", ".radios")):
        page.goto(f"{stack.server.url}/incidents/{numbers[0]}")
        expect(page.locator(".more-acts")).to_be_visible()
        page.keyboard.press(key)
        expect(page.locator(sign).first).to_be_visible()
        found[key] = violations_in_both_themes(page)
    page.goto(f"{stack.server.url}/silences")
    page.keyboard.press("Control+k")
    expect(page.get_by_role("option").first).to_be_visible()
    found["palette"] = violations_in_both_themes(page)
    page.keyboard.press("Escape")
    found["silences"] = violations_in_both_themes(page)
    page.goto(f"{stack.server.url}/scorecard")
    expect(page.locator(".score-facts")).to_be_visible()
    found["scorecard"] = violations_in_both_themes(page)
    assert not {what: wrong for what, wrong in found.items() if wrong}
