"""What people do with the console, in a real browser on the real stack: the page follows by itself, acts are seen by
everyone, and whoever may not act cannot."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Browser, Page, Route, expect

from console.accounts.models import Membership, Role
from console.incidents import lifecycle
from console.incidents.models import ActorKind
from ingest.models import Node, Team
from tests.browser.conftest import PHONE, OpenAs
from tests.browser.stack import PASSWORD, Stack

pytestmark = pytest.mark.browser


def test_a_stranger_signs_in_with_name_and_password_and_lands_where_they_wanted(stack: Stack, chrome: Browser) -> None:
    page = chrome.new_page()
    page.goto(f"{stack.server.url}/incidents")
    expect(page).to_have_url(re.compile("/signin"))
    page.get_by_label("Name").fill("rita")
    page.get_by_label("Password").fill("wrong, surely")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("do not fit")
    page.get_by_label("Name").fill("rita")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="Incidents", level=1)).to_be_visible()


def test_an_empty_console_says_how_to_begin(open_as: OpenAs) -> None:
    page = open_as("rita")
    expect(page.get_by_text("No job has sent anything yet.")).to_be_visible()
    expect(page.get_by_text("nccl_instrument.agent")).to_be_visible()


def test_an_incident_appears_on_the_open_page_without_a_reload(stack: Stack, open_as: OpenAs) -> None:
    page = open_as("rita")
    page.evaluate("window.notReloaded = true")
    incident = stack.stalling_job()
    card = page.locator(".incident-card")
    expect(card.get_by_role("heading")).to_have_text(incident.headline)
    expect(card.locator(".fact-culprit")).to_contain_text("rank 3")
    expect(page).to_have_title(re.compile(r"^\(1\) Now"))
    expect(page.locator("tbody tr")).to_contain_text("Stuck")
    assert page.evaluate("window.notReloaded")


def test_the_incident_page_names_who_started_it_and_who_only_waits(stack: Stack, open_as: OpenAs) -> None:
    incident = stack.stalling_job()
    page = open_as("rita", f"/incidents/{incident.pk}")
    expect(page.get_by_role("heading", level=1)).to_have_text(incident.headline)
    expect(page.locator(".culprit-card")).to_contain_text("Rank 3")
    expect(page.locator(".culprit-card")).to_contain_text("node-1")
    expect(page.get_by_label("Verdict")).to_contain_text("7 ranks")
    expect(page.get_by_label("Verdict")).to_contain_text(re.compile("evidence: "))
    expect(page.get_by_role("list", name="States of the ranks")).to_contain_text("Culprit 1")


def test_two_tabs_see_one_acknowledgement(stack: Stack, open_as: OpenAs) -> None:
    incident = stack.stalling_job()
    rita, ada = (open_as(name, f"/incidents/{incident.pk}") for name in ("rita", "ada"))
    rita.get_by_role("button", name="Acknowledge").click()
    for page in (rita, ada):
        expect(page.locator(".incident-head .chip")).to_have_text("Acknowledged")
        expect(page.locator(".incident-head")).to_contain_text("rita has it")
        expect(page.get_by_role("button", name="Un-acknowledge")).to_be_enabled()


def test_who_comes_second_is_told_who_was_first(stack: Stack, open_as: OpenAs) -> None:
    incident = stack.stalling_job()
    late = open_as("ada", f"/incidents/{incident.pk}")

    def let_rita_be_first(route: Route) -> None:
        _acknowledge_as_rita(open_as)
        route.continue_()

    late.route("**/api/v1/incidents/*/acknowledge", let_rita_be_first)
    late.get_by_role("button", name="Acknowledge").click()
    expect(late.locator(".notice")).to_contain_text("rita acknowledged it first")
    expect(late.locator(".incident-head")).to_contain_text("rita has it")


def _acknowledge_as_rita(open_as: OpenAs) -> None:
    page = open_as("rita", "/")
    # The page shows an act before the server has it; whoever goes on from here relies on the server.
    with page.expect_response("**/acknowledge"):
        page.locator(".incident-card").get_by_role("button", name="Acknowledge").click()
    expect(page.locator(".incident-card")).to_contain_text("rita has it")


def test_resolving_needs_a_reason_and_the_timeline_keeps_it(stack: Stack, open_as: OpenAs) -> None:
    incident = stack.stalling_job()
    page = open_as("rita", f"/incidents/{incident.pk}?tab=activity")
    page.get_by_role("button", name="Resolve").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("still saw it happening")
    dialog.get_by_role("button", name="Resolve").click()
    expect(dialog).to_be_visible()
    dialog.get_by_label("What was done").fill("rank 3 restarted")
    dialog.get_by_role("button", name="Resolve").click()
    expect(page.locator(".incident-head .chip")).to_have_text("Resolved")
    expect(page.locator(".timeline")).to_contain_text("rank 3 restarted")
    expect(page.get_by_role("button", name="Reopen")).to_be_enabled()


def test_a_viewer_may_look_and_comment_nowhere(stack: Stack, open_as: OpenAs) -> None:
    incident = stack.stalling_job()
    page = open_as("vera", f"/incidents/{incident.pk}?tab=activity")
    expect(page.get_by_text("Acting needs the responder role")).to_be_visible()
    expect(page.get_by_role("button", name="Acknowledge")).to_have_count(0)
    expect(page.get_by_label("Comment")).to_have_count(0)
    page.keyboard.press("a")
    expect(page.locator(".incident-head .chip")).to_have_text("Open")
    page.goto(f"{stack.server.url}/settings")
    expect(page.get_by_text("Only admins see and create agent tokens.")).to_be_visible()


def test_the_keyboard_alone_is_enough(stack: Stack, open_as: OpenAs) -> None:
    incident = stack.stalling_job()
    page = open_as("rita", "/")
    page.keyboard.press("i")
    expect(page.get_by_role("heading", name="Incidents", level=1)).to_be_visible()
    expect(page.locator(".incident-list li")).to_have_count(1)
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(f"/incidents/{incident.pk}$"))
    expect(page.get_by_role("button", name="Acknowledge")).to_be_visible()
    page.keyboard.press("a")
    expect(page.locator(".incident-head .chip")).to_have_text("Acknowledged")
    expect(page.get_by_role("button", name="Un-acknowledge")).to_be_enabled()
    page.keyboard.press("a")
    page.keyboard.press("c")
    page.keyboard.type("on it")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".timeline")).to_contain_text("on it")
    expect(page.locator(".incident-head .chip")).to_have_text("Acknowledged")
    page.keyboard.press("Tab")
    page.locator("h1").click()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("Keyboard")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_no_key_acknowledges_what_nobody_selected(stack: Stack, open_as: OpenAs) -> None:
    stack.stalling_job()
    page = open_as("rita", "/")
    card = page.locator(".incident-card")
    expect(card).to_be_visible()
    page.keyboard.press("a")
    page.keyboard.press("j")
    expect(card).to_have_class(re.compile("chosen"))
    expect(card.locator(".chip")).to_have_text("Open")
    page.keyboard.press("a")
    expect(card).to_contain_text("rita has it")


def test_taking_an_acknowledgement_from_somebody_else_asks_first(stack: Stack, open_as: OpenAs) -> None:
    incident = stack.stalling_job()
    _acknowledge_as_rita(open_as)
    page = open_as("ada", f"/incidents/{incident.pk}")
    page.get_by_role("button", name="Un-acknowledge").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("rita has incident")
    dialog.get_by_role("button", name="Leave it to rita").click()
    expect(page.locator(".incident-head")).to_contain_text("rita has it")
    page.get_by_role("button", name="Un-acknowledge").click()
    dialog.get_by_role("button", name="Un-acknowledge").click()
    expect(page.locator(".incident-head .chip")).to_have_text("Open")


@pytest.mark.parametrize("path", ["/incidents/99", "/jobs/77"])
def test_what_does_not_exist_leads_back_to_now(path: str, open_as: OpenAs) -> None:
    page = open_as("rita", path)
    expect(page.get_by_text("There is nothing at this address.")).to_be_visible()
    expect(page.get_by_role("button", name="Try now")).to_have_count(0)
    page.get_by_role("link", name="Back to Now").click()
    expect(page.get_by_text("No job has sent anything yet.")).to_be_visible()


def test_a_page_that_could_not_be_loaded_loads_itself(open_as: OpenAs) -> None:
    page = open_as("rita")
    page.route("**/api/v1/incidents", lambda route: route.abort())
    page.keyboard.press("i")
    expect(page.get_by_text("The server cannot be reached.")).to_be_visible()
    expect(page.locator(".segmented button").first).to_have_text(re.compile("All –"))
    page.unroute("**/api/v1/incidents")
    expect(page.get_by_text("There has been no incident yet.")).to_be_visible()
    expect(page.locator(".segmented button").first).to_have_text(re.compile("All 0"))


def test_arrow_keys_walk_the_grid_and_enter_selects_the_rank(stack: Stack, open_as: OpenAs) -> None:
    incident = stack.stalling_job()
    page = open_as("rita", f"/incidents/{incident.pk}")
    grid = page.get_by_role("grid")
    grid.focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    expect(page.locator("[role=gridcell]")).to_have_text(re.compile("^Rank 3, node-1.*Culprit"))
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("rank=3"))
    expect(page.locator("#flows + span")).to_contain_text("of rank 3")


def test_grid_and_lanes_have_tables_that_say_the_same(stack: Stack, open_as: OpenAs) -> None:
    incident = stack.stalling_job()
    page = open_as("rita", f"/incidents/{incident.pk}?grid=table&lanes=table")
    rows = page.locator("section:has(#topology) tbody tr")
    expect(rows).to_have_count(8)
    expect(rows.first).to_contain_text("Culprit")
    expect(page.locator("section:has(#flows) tbody tr").first).to_contain_text(re.compile("sends to|receives from"))


def test_a_silent_connection_is_called_stale_and_heals(stack: Stack, open_as: OpenAs) -> None:
    page = open_as("rita")
    page.context.set_offline(True)
    expect(page.locator(".live")).to_contain_text("Stale")
    expect(page.locator(".stale-banner")).to_be_visible()
    page.context.set_offline(False)
    expect(page.locator(".live")).to_have_text("Live", timeout=30_000)


def test_what_happened_while_the_server_was_away_is_there_when_it_returns(stack: Stack, open_as: OpenAs) -> None:
    incident = stack.stalling_job()
    page = open_as("rita", f"/incidents/{incident.pk}?tab=activity")
    page.evaluate("window.notReloaded = true")
    stack.restart_after(lifecycle.comment, incident.pk, lifecycle.Actor("ada", ActorKind.USER), "said in between")
    expect(page.locator(".timeline")).to_contain_text("said in between", timeout=30_000)
    expect(page.locator(".live")).to_have_text("Live", timeout=30_000)
    assert page.evaluate("window.notReloaded")


_TAB_IS_SEEN = """() => {
  const tab = [...document.querySelectorAll("[role=tab]")].find((one) => one.textContent.startsWith("Activity"));
  scrollBy(0, tab.getBoundingClientRect().top - innerHeight / 2);
  const { left, right, top, bottom } = tab.getBoundingClientRect();
  return left >= 0 && right <= innerWidth && top >= 0 && bottom <= innerHeight;
}"""


def test_on_a_phone_one_sees_the_incident_and_acknowledges_it(stack: Stack, open_as: OpenAs) -> None:
    incident = stack.stalling_job()
    page = open_as("rita", "/incidents", viewport=PHONE)
    page.get_by_role("link", name=incident.headline).click()
    expect(page.get_by_role("heading", level=1)).to_be_in_viewport()
    page.get_by_role("button", name="Acknowledge").click()
    expect(page.locator(".incident-head .chip")).to_have_text("Acknowledged")
    expect(page.get_by_role("button", name="Comment").first).to_be_in_viewport()
    page.get_by_role("tab", name="Activity").click()
    page.reload()
    expect(page.get_by_role("tab", name="Activity")).to_be_visible()
    page.wait_for_function(_TAB_IS_SEEN)  # the page grows above the tab while it loads
    assert _does_not_scroll_sideways(page)


def test_on_a_phone_jobs_and_nodes_are_cards_not_cut_off_tables(stack: Stack, open_as: OpenAs) -> None:
    stack.stalling_job()
    page = open_as("rita", "/", viewport=PHONE)
    for path in ("/", "/nodes"):
        page.goto(stack.server.url + path)
        expect(page.locator(".cards tbody tr").first).to_be_visible()
        assert page.evaluate(
            "document.querySelector('.cards').scrollWidth <= document.querySelector('.cards').clientWidth"
        )


def _does_not_scroll_sideways(page: Page) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth <= innerWidth"))


def test_any_rank_can_be_asked_why_it_is_not_blamed(stack: Stack, open_as: OpenAs) -> None:
    incident = stack.stalling_job()
    page = open_as("vera", f"/incidents/{incident.pk}?tab=why-not")
    page.get_by_label("Rank", exact=True).fill("0")
    page.get_by_role("button", name="Ask").click()
    expect(page.locator(".answer")).to_contain_text("Why not rank 0?")
    expect(page).to_have_url(re.compile("rank=0"))
    expect(page.locator("#flows + span")).to_contain_text("of rank 0")


def test_a_pause_a_report_and_a_threshold_are_told_on_the_jobs_pages(stack: Stack, open_as: OpenAs) -> None:
    incident = stack.stalling_job()
    page = open_as("rita", f"/jobs/{incident.job_id}")
    page.get_by_role("button", name="Declare a pause").click()
    page.get_by_label("Why?").fill("evaluation of step 12000")
    page.get_by_role("dialog").get_by_role("button", name="Declare").click()
    expect(page.locator(".pause-note")).to_contain_text("evaluation of step 12000")
    page.get_by_role("button", name="End the pause").click()
    expect(page.locator(".pause-note")).to_have_count(0)

    page.get_by_role("link", name="Settings of this job").click()
    patience = page.get_by_label("delta_max_s, s")
    patience.fill("9000")
    expect(page.locator(".save-bar")).to_contain_text("delta_max_s must be 1 to 600 s.")
    patience.fill("30")
    page.get_by_label("Why?").fill("its store is slow")
    page.get_by_role("button", name="Change", exact=True).click()
    expect(page.get_by_role("region", name="History")).to_contain_text("its store is slow")
    expect(page.locator("tr.changed")).to_contain_text("rita")

    page.goto(f"{stack.server.url}/jobs/{incident.job_id}")
    page.get_by_role("button", name="Report a problem").click()
    page.get_by_label("What did you see?").fill("the loss is flat")
    page.get_by_role("dialog").get_by_role("button", name="Report").click()
    expect(page).to_have_url(re.compile(f"/incidents/{incident.pk}$"))
    page.get_by_role("tab", name="Activity").click()
    expect(page.locator(".timeline")).to_contain_text("the loss is flat")


def test_an_admin_makes_a_token_that_is_shown_once(open_as: OpenAs) -> None:
    page = open_as("ada", "/settings")
    page.locator("#token-label").fill("cluster b")
    page.get_by_role("button", name="Create token").first.click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("code")).to_have_text(re.compile("^dga_"))
    dialog.get_by_role("button", name="I have copied it").click()
    expect(page.get_by_role("row", name=re.compile("cluster b"))).to_be_visible()
    assert "dga_" not in page.content()


def test_who_administers_two_teams_says_for_which_a_token_is(stack: Stack, open_as: OpenAs) -> None:
    stack.do(_administer_another_team, "ada")
    page = open_as("ada", "/settings")
    page.locator("#token-label").fill("cluster c")
    expect(page.get_by_role("button", name="Create token").first).to_be_disabled()
    page.locator("#token-team").select_option("serving")
    page.get_by_role("button", name="Create token").first.click()
    page.get_by_role("dialog").get_by_role("button", name="I have copied it").click()
    expect(page.get_by_role("row", name=re.compile("cluster c serving"))).to_be_visible()


def _administer_another_team(name: str) -> None:
    user = User.objects.get(username=name)
    Membership.objects.create(user=user, team=Team.objects.create(name="serving"), role=Role.ADMIN)


def test_the_now_page_tells_what_ingest_refused_and_lost(stack: Stack, open_as: OpenAs) -> None:
    stack.run_job()
    stack.do(Team.objects.update, batches_refused=2)
    stack.do(Node.objects.update, losses={"ring_records": 3400})
    ingest = open_as("rita").get_by_role("region", name="Ingest")
    expect(ingest).to_contain_text("native partitions")
    expect(ingest).to_contain_text("2 batches refused")
    expect(ingest).to_contain_text("records overwritten before they were read")
