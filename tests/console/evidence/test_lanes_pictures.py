"""Flows and who stood still, as pictures: in the page's order, colours and words; a culprit's colour is a culprit's alone."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from console.evidence import lanes_order
from console.evidence.lanes_order import RECEIVE_WORDS, SEND_WORDS, Row, shown, telling_tick, words_of
from console.evidence.lanes_picture import lanes_svg, on_one_clock
from console.evidence.standing_picture import CONDITION, DOING, FORMULA, PALE, RECEIVING, standing_svg
from console.evidence.svg import COLOUR, ROLE, moments
from console.incidents.pictures.lanes import Lane, Lanes, make_lanes
from ingest.window import Window
from rca.diagnose import diagnose
from rca.findings import Diagnosis, NodeClock, Subject
from rca.hang.standing import Span, Standing, standing
from rca.slow.breakdown import PARTS
from rca.slow.inside import Wait
from rca.triggers.look import look
from tests.windows import make_window

FRONTEND = Path(__file__).parents[3] / "frontend" / "src"
MS = 1_000_000
START = 1_800_000_000_000_000_000


@pytest.fixture(scope="module")
def window() -> Window:
    return make_window(ranks=8, nic_down=2)


@pytest.fixture(scope="module")
def diagnosis(window: Window) -> Diagnosis:
    return diagnose(window, look(window).symptoms[0])


def make_lane(rank: int, counters: tuple[int, int, int, int], stuck_ms: int = 9_000, **other: object) -> Lane:
    """A lane of two ticks, the last of them 100 ms before the end."""
    posted, ready, transmitted, done = ([0, n] for n in counters)
    lane = Lane(
        id=f"{rank}", rank=rank, peer_rank=rank + 1, comm_id="1", comm_name="world", channel=0, direction="send",
        func="AllReduce", op=7, transport="IB", total_chunks=16, t_ns=[START, START + 9_900 * MS],
        posted=posted, ready=ready, transmitted=transmitted, done=done, stuck_ms=[0, stuck_ms], ops=[7, 7],
    )  # fmt: skip
    return dataclasses.replace(lane, **other)  # type: ignore[arg-type]


def lanes_of(*lanes: Lane, newest_ms: int = 10_000) -> Lanes:
    end = START + 10_000 * MS
    return Lanes(START, end, START + newest_ms * MS, None, None, list(lanes), 0, [])


def texts(svg: str) -> list[str]:
    return [one.text or "" for one in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def of_page(file: str, name: str) -> dict[str, str]:
    """key → what a table of the page says of it."""
    body = re.search(name + r"[^=]*= \{(.*?)\n?\};", (FRONTEND / file).read_text(), re.DOTALL)
    assert body is not None
    return dict(re.findall(r'(\w+): (?:\{ word: )?"([^"]*)"', body[1]))


def test_colours_are_the_pages() -> None:
    page = dict(re.findall(r"--([\w-]+): light-dark\((#\w+),", (FRONTEND / "styles/tokens.css").read_text()))
    assert {name: page.get(name) for name in COLOUR} == COLOUR


def test_words_are_the_pages() -> None:
    assert of_page("lanes/standing.ts", "DOING") == DOING
    assert of_page("lanes/standing.ts", "RECEIVING") == RECEIVING
    assert of_page("lanes/scale.ts", "RECEIVE_WORDS") == RECEIVE_WORDS
    assert of_page("lanes/LaneBox.tsx", "HEADING") == ROLE
    assert {
        key: word for key, word in of_page("state/words.ts", "FLOW_STATE").items() if key != "formula"
    } == SEND_WORDS
    formulas = re.findall(r'(\w+): \{ word: "[^"]*", formula: "([^"]*)"', (FRONTEND / "state/words.ts").read_text())
    assert dict(formulas) == FORMULA


def test_conditions_have_the_colours_of_the_page() -> None:
    style = (FRONTEND / "styles/standing.css").read_text()
    assert dict(re.findall(r"\.doing-(\w+) \{\s+--fill: var\(--(class-\d)\);\s+--mark", style)) == CONDITION


def test_culprits_stand_first_and_their_colour_is_theirs_alone(window: Window, diagnosis: Diagnosis) -> None:
    lanes = make_lanes(window, (5, *diagnosis.culprits, 1), window.start_ns, window.end_ns - 1)
    svg, _ = lanes_svg(lanes, diagnosis, "Incident 1", {})
    said = texts(svg)
    assert said.index("Started it") < said.index("Only wait")
    groups, _ = shown(lanes, diagnosis)
    assert [name for name, _ in groups] == ["culprit", "victim"]
    assert {row.lane.rank for row in groups[0][1]} == set(diagnosis.culprits)
    waiters = svg[svg.index("Only wait") : svg.index("culprit, suspect: nothing moved")]
    started = svg[svg.index("Started it") : svg.index("Only wait")]
    assert "lane-stall-over" in started and "lane-stall-over" not in waiters and "lane-wait-over" in waiters


def test_flows_of_a_tie_stand_first_and_none_of_them_only_waits(window: Window, diagnosis: Diagnosis) -> None:
    lanes = make_lanes(window, (5, *diagnosis.culprits, 1), window.start_ns, window.end_ns - 1)
    tied = tuple(Subject("rank", f"rank {rank}", (rank,)) for rank in (5, *diagnosis.culprits))
    victims = tuple(rank for rank in diagnosis.victims if rank != 5)
    best = dataclasses.replace(diagnosis.findings[0], culprits=(), tied=tied)
    groups, _ = shown(lanes, dataclasses.replace(diagnosis, findings=(best,), victims=victims))
    assert [name for name, _ in groups] == ["suspect", "victim"]
    assert {row.lane.rank for row in groups[0][1]} == {5, *diagnosis.culprits}


def test_of_many_flows_none_of_a_role_are_crowded_out_and_the_rest_is_counted(diagnosis: Diagnosis) -> None:
    culprit, victim = diagnosis.culprits[0], diagnosis.victims[0]
    many = [make_lane(culprit, (8, 5, 4, 4), channel=n) for n in range(40)]
    lanes = lanes_of(*many, *(make_lane(victim, (8, 5, 4, 4), channel=n) for n in range(3)))
    groups, n_folded = shown(lanes, diagnosis)
    assert [(name, len(rows)) for name, rows in groups] == [("culprit", 29), ("victim", 3)]
    assert n_folded == 11 and lanes_svg(lanes, diagnosis, "t", {})[1] == 11
    few = lanes_of(*(make_lane(victim, (8, 5, 4, 4), channel=n) for n in range(90)))
    assert len(shown(few, None)[0][0][1]) == lanes_order.ROWS_MAX


def test_of_flows_alike_those_with_a_culprit_at_the_other_end_come_first(diagnosis: Diagnosis) -> None:
    culprit, (first, *_, last) = diagnosis.culprits[0], diagnosis.victims
    far, near = make_lane(first, (8, 5, 4, 4), peer_rank=last), make_lane(last, (8, 5, 4, 4), peer_rank=culprit)
    ((_, rows),), _ = shown(lanes_of(far, near), diagnosis)
    assert [row.lane for row in rows] == [near, far]


def test_the_page_knows_which_parts_of_a_slow_op_only_wait() -> None:
    page = re.search(r"WAITS = new Set\(\[(.*)\]\)", (FRONTEND / "incident/compare.ts").read_text())
    assert page is not None
    assert set(re.findall(r'"([^"]+)"', page[1])) == {PARTS[Wait.DATA], PARTS[Wait.CREDIT]}


def test_flows_that_stand_come_before_those_that_move_and_those_without_an_op() -> None:
    idle = make_lane(1, (8, 5, 4, 4), t_ns=[START, START + 100 * MS])
    moves, stands = make_lane(2, (8, 5, 4, 4), stuck_ms=0), make_lane(3, (8, 5, 4, 4))
    ((_, rows),), _ = shown(lanes_of(idle, moves, stands), None)
    assert [row.lane.rank for row in rows] == [3, 2, 1]


@pytest.mark.parametrize(
    ("counters", "direction", "said"),
    [
        ((8, 0, 0, 0), "send", "Not started · 9.0 s"), ((8, 5, 4, 4), "send", "Ready but not transmitted · 9.0 s"),
        ((8, 5, 5, 4), "recv", "Flushed but not consumed by the GPU · 9.0 s"),
        ((8, 4, 4, 4), "send", "GPU not ready with the next chunk · 9.0 s"), ((16, 16, 16, 16), "send", "Op complete · 9.0 s"),
    ],
)  # fmt: skip
def test_a_row_says_what_its_flow_does(counters: tuple[int, int, int, int], direction: str, said: str) -> None:
    lane = make_lane(0, counters, direction=direction)
    assert words_of(Row(lane, telling_tick(lane, START + 10_000 * MS))) == said


def test_where_more_is_known_than_is_drawn_a_flow_stands_for_more_than_it_shows() -> None:
    lane = make_lane(0, (8, 5, 4, 4))
    assert "Ready but not transmitted · > 9 s" in texts(lanes_svg(lanes_of(lane, newest_ms=60_000), None, "t", {})[0])
    assert "Ready but not transmitted · 9.0 s" in texts(lanes_svg(lanes_of(lane), None, "t", {})[0])


def test_one_flow_is_one_flow() -> None:
    assert "1 of 1 flow, those" in lanes_svg(lanes_of(make_lane(0, (8, 5, 4, 4))), None, "t", {})[0]


def test_a_flow_that_was_not_seen_lately_is_not_said_to_stand() -> None:
    lane = make_lane(0, (8, 5, 4, 4), t_ns=[START, START + 5_000 * MS])
    assert words_of(Row(lane, telling_tick(lane, START + 10_000 * MS))) == lanes_order.NO_OP


def test_what_is_not_kept_or_not_known_is_hatched_and_no_flow_at_all_is_said() -> None:
    late = make_lane(0, (8, 5, 4, 4), t_ns=[START + 3_000 * MS, START + 9_900 * MS])
    hatch = 'fill="url(#rank-unknown)"'
    assert lanes_svg(lanes_of(make_lane(0, (8, 5, 4, 4))), None, "t", {})[0].count(hatch) == 1, "the legend alone"
    assert lanes_svg(lanes_of(late), None, "t", {})[0].count(hatch) == 2
    assert lanes_svg(lanes_of(late, newest_ms=9_950), None, "t", {})[0].count(hatch) == 3
    assert any("of these ranks none was in" in text for text in texts(lanes_svg(lanes_of(), None, "t", {})[0]))


def test_a_step_of_progress_ends_where_no_tick_follows() -> None:
    svg, _ = lanes_svg(lanes_of(make_lane(0, (8, 8, 8, 8), stuck_ms=0)), None, "t", {})
    (done,) = re.findall(rf'<path d="([^"]*)" fill="{COLOUR["lane-done"]}"/>', svg)
    assert done.count("M") == done.count("Z") == 2, "two ticks ten seconds apart are not joined by a line"


def test_a_node_whose_clock_is_ahead_is_put_back(diagnosis: Diagnosis) -> None:
    clocks = (NodeClock("ahead", 500 * MS, MS), NodeClock("unsure", 500 * MS, 900 * MS))
    lanes = lanes_of(make_lane(0, (8, 5, 4, 4)), make_lane(1, (8, 5, 4, 4)))
    put = on_one_clock(lanes, dataclasses.replace(diagnosis, clocks=clocks), {0: "ahead", 1: "unsure"})
    assert [lane.t_ns[0] - START for lane in put.lanes] == [-500 * MS, 0]


def test_moments_that_are_not_known_are_not_drawn(diagnosis: Diagnosis) -> None:
    assert [one.word for one in moments(None, 0, START)] == ["triggered"]
    late = dataclasses.replace(diagnosis.findings[0], began_ns=START + 5)
    said = moments(dataclasses.replace(diagnosis, findings=(late,)), START, START + 9)
    assert [one.word for one in said] == ["seen at culprit", "first symptom", "triggered"]


def spans_of(*spans: tuple[int, str, str]) -> Standing:
    made = tuple(Span(rank, START, START + 9_000 * MS, doing, side) for rank, doing, side in spans)
    return Standing(START, START + 9_000 * MS, 500 * MS, tuple(rank for rank, _, _ in spans), made, 0)


def test_who_stood_still_is_headed_and_told_in_the_pages_words(window: Window, diagnosis: Diagnosis) -> None:
    ranks = [*diagnosis.victims, *diagnosis.culprits]
    svg = standing_svg(standing(window, ranks, ()), diagnosis, "Incident 1", {rank: f"node{rank}" for rank in ranks})
    said = texts(svg)
    culprit = diagnosis.culprits[0]
    assert said.index("Started it") < said.index(f"rank {culprit} node{culprit}") < said.index("Only wait")
    assert said.index("Only wait") < said.index(f"rank {diagnosis.victims[0]} node{diagnosis.victims[0]}")
    assert any(text.split(",")[0] in DOING.values() for text in said)


def test_sides_are_hatched_or_edged_and_what_the_verdict_overrules_is_neither(diagnosis: Diagnosis) -> None:
    culprit, victim = diagnosis.culprits[0], diagnosis.victims[0]
    spans = spans_of((culprit, "not_delivered", "local"), (victim, "gpu_not_ready", "remote"))
    svg = standing_svg(spans, diagnosis, "t", {})
    assert {"not delivered, its own side", "GPU not ready, the other side"} <= set(texts(svg))
    assert "url(#class-2)" in svg and COLOUR["class-3-mark"] in svg.split("</defs>")[1]
    turned = spans_of((culprit, "not_delivered", "remote"), (victim, "gpu_not_ready", "local"))
    svg = standing_svg(turned, diagnosis, "t", {})
    assert {"not delivered", "GPU not ready"} <= set(texts(svg))
    assert "url(#class-" not in svg and "-mark" not in svg.split("</defs>")[1]


def test_a_receiver_is_worded_from_its_own_side_and_who_only_waits_is_pale(diagnosis: Diagnosis) -> None:
    """Table 4's ②>③ of a receiver is no delivery that failed, and a victim's counters alone do not make it the culprit."""
    culprit, victim = diagnosis.culprits[0], diagnosis.victims[0]
    made = spans_of((culprit, "not_delivered", "local"), (victim, "not_delivered", "local"))
    sends, receives = (
        dataclasses.replace(span, direction=way) for span, way in zip(made.spans, ("send", "receive"), strict=True)
    )
    svg = standing_svg(dataclasses.replace(made, spans=(sends, receives)), diagnosis, "t", {})
    assert {"not delivered, its own side", "received, not consumed"} <= set(texts(svg))
    assert "not delivered / received, not consumed  ②>③" in texts(svg)
    assert svg.count(f'opacity="{PALE}"') == 1
    style = (FRONTEND / "styles/standing.css").read_text()
    assert f".side-overruled {{\n  opacity: {PALE};" in style


def test_a_rank_of_which_nothing_is_known_says_so() -> None:
    nothing = dataclasses.replace(spans_of((0, "moves", "")), ranks=(0, 9))
    assert "nothing heard" in texts(standing_svg(nothing, None, "t", {}))
