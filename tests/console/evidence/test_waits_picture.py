"""The waiting path as a picture, and pictures as PNG: what has no room is counted, and no font is no picture."""

from __future__ import annotations

import dataclasses
import re
import struct
import zlib
from collections.abc import Iterator
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from console.evidence import raster
from console.evidence.grid_picture import grid_svg
from console.evidence.raster import NO_FONT, PNG_BYTES_MAX, NoPicture, font_family, png_of
from console.evidence.waits_picture import ranks_words, waits_svg
from console.incidents.pictures.grid import make_grid
from rca.diagnose import diagnose
from rca.findings import Diagnosis, Subject, WaitEdge
from rca.triggers.look import look
from tests.windows import make_window


@pytest.fixture(scope="module")
def diagnosis() -> Diagnosis:
    window = make_window(ranks=8, stuck_before=3)
    return diagnose(window, look(window).symptoms[0])


@pytest.fixture
def no_font(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    font_family.cache_clear()
    monkeypatch.setattr(raster, "FAMILIES", ())
    yield
    font_family.cache_clear()


def with_path(diagnosis: Diagnosis, culprits: tuple[int, ...], *waits: tuple[int, int]) -> Diagnosis:
    path = tuple(WaitEdge(waiter, waits_for, 1, 5, f"rank {waits_for} <is> late") for waiter, waits_for in waits)
    return dataclasses.replace(
        diagnosis, path=path, findings=(dataclasses.replace(diagnosis.findings[0], culprits=culprits),)
    )


def texts(svg: str) -> list[str]:
    return [one.text or "" for one in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def boxes(svg: str) -> dict[str, tuple[float, float]]:
    """Words of each box → where it stands."""
    found = re.findall(r'<text x="([\d.]+)" y="([\d.]+)" fill="#\w+" font-weight="600">([^<]*)<', svg)
    return {words: (float(x), float(y)) for x, y, words in found}


def test_what_a_box_says_stands_there_whole(diagnosis: Diagnosis) -> None:
    why = "in the same op, which rank 0 is blocking inside the node, not visible to the network"
    edges = (WaitEdge(0, 3, 1, 5, why), WaitEdge(1, 0, 1, 5, "late"))
    svg = waits_svg(dataclasses.replace(with_path(diagnosis, (3,)), path=edges), "t")
    assert why in " ".join(texts(svg)) and "…" not in svg
    assert all(len(line) <= 36 for line in texts(svg) if line in why)
    long = waits_svg(dataclasses.replace(with_path(diagnosis, (3,)), path=(WaitEdge(0, 3, 1, 5, "word " * 90),)), "t")
    assert "word …" in long, "what is cut says so"


def size_of(png: bytes) -> tuple[int, int]:
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", png[16:24])
    return width, height


def test_a_diagnosis_of_a_hang_is_drawn_with_its_culprit_on_the_left(diagnosis: Diagnosis) -> None:
    drawn = boxes(waits_svg(diagnosis, "Incident 1"))
    assert min(drawn, key=lambda words: drawn[words][0]) == "rank 3"
    assert len(drawn) > 1


def test_who_waits_for_the_same_is_one_box_right_of_what_it_waits_for(diagnosis: Diagnosis) -> None:
    svg = waits_svg(with_path(diagnosis, (3,), (0, 3), (1, 3), (2, 3), (8, 1), (9, 8)), "<b>")
    drawn = boxes(svg)
    assert list(drawn) == ["rank 3", "ranks 0–2", "rank 8", "rank 9"]
    assert all(left[0] < right[0] for left, right in pairwise(drawn.values()))
    assert "rank 3 <is> late" in texts(svg) and "<b>" in texts(svg)


def test_who_waits_for_the_same_rank_for_another_reason_is_another_box(diagnosis: Diagnosis) -> None:
    down, inside = "a NIC between them is down", "in the same op, which rank 7 is blocking inside the node"
    edges = (WaitEdge(3, 7, 1, 5, down), WaitEdge(5, 7, 1, 5, down), WaitEdge(6, 7, 1, 5, inside))
    svg = waits_svg(dataclasses.replace(with_path(diagnosis, (7,)), path=edges), "t")
    assert list(boxes(svg)) == ["rank 7", "ranks 3, 5", "rank 6"]
    said = " ".join(texts(svg))
    assert f"ranks 3, 5 {down}" in said and f"rank 6 {inside}" in said


def test_reasons_too_many_for_boxes_are_told_together_and_none_for_another(diagnosis: Diagnosis) -> None:
    named = tuple(WaitEdge(10 + n, 3, 1, 5, f"rank {20 + n} has not entered the op") for n in range(9))
    svg = waits_svg(dataclasses.replace(with_path(diagnosis, (3,)), path=named), "t")
    assert list(boxes(svg)) == ["rank 3", "ranks 10–18"]
    assert "that rank has not entered the op" in " ".join(texts(svg))
    other = (*named, WaitEdge(30, 3, 1, 5, "its process has ended"))
    svg = waits_svg(dataclasses.replace(with_path(diagnosis, (3,)), path=other), "t")
    assert "each for a reason of its own" in texts(svg)


def test_of_a_tie_the_ranks_of_which_one_started_it_stand_on_the_left(diagnosis: Diagnosis) -> None:
    found = with_path(diagnosis, (), (0, 3), (1, 4))
    tied = tuple(Subject("rank", f"rank {rank}", (rank,)) for rank in (3, 4))
    svg = waits_svg(dataclasses.replace(found, findings=(dataclasses.replace(found.findings[0], tied=tied),)), "t")
    drawn = boxes(svg)
    assert drawn["rank 3"][0] == drawn["rank 4"][0] < drawn["rank 0"][0]
    assert "may be where it started" in texts(svg)


def test_no_box_stands_on_another_and_what_has_no_room_is_counted(diagnosis: Diagnosis) -> None:
    waits = [(rank, 3) for rank in range(10, 13)]
    waits += [(100 + n, 10 + n % 3) for n in range(40)] + [(200 + n, 100 + n) for n in range(40)]
    waits += [(300, 200), (301, 300), (400, 401), (401, 400)]  # too far away; a circle that nobody leads to
    svg = waits_svg(with_path(diagnosis, (3,), *waits), "t")
    drawn = boxes(svg)
    assert len(set(drawn.values())) == len(drawn)
    left = int(re.search(r"; ([\d,]+) ranks left out", svg)[1].replace(",", ""))  # type: ignore[index]
    shown = sum(len(title.split(", ")) for title in re.findall(r"<title>([^<]*)</title>", svg))
    assert shown + left == 1 + len({waiter for waiter, _ in waits})


def test_culprits_that_wait_for_each_other_are_drawn_once(diagnosis: Diagnosis) -> None:
    drawn = boxes(waits_svg(with_path(diagnosis, (1, 2), (1, 2), (2, 1), (5, 1)), "t"))
    assert sorted(drawn) == ["rank 1", "rank 2", "rank 5"]


def test_nobody_blamed_is_said(diagnosis: Diagnosis) -> None:
    svg = waits_svg(with_path(diagnosis, ()), "t")
    assert any("Nobody is blamed" in text for text in texts(svg))


def test_ranks_are_told_as_runs() -> None:
    assert [ranks_words(ranks) for ranks in ([3], [0, 1, 2], [0, 2, 4, 6, 7])] == [
        "rank 3",
        "ranks 0–2",
        "ranks 0, 2, 4 + 2",
    ]


def test_a_picture_is_a_png_twice_as_sharp_on_white_paper(diagnosis: Diagnosis) -> None:
    svg = waits_svg(diagnosis, "Incident 1")
    found = re.match(r'<svg [^>]*width="(\d+)" height="(\d+)"', svg)
    assert found is not None
    png = png_of(svg)
    assert size_of(png) == (2 * int(found[1]), 2 * int(found[2]))
    at, data = 8, b""
    while at < len(png):
        length, name = struct.unpack(">I4s", png[at : at + 8])
        data += png[at + 8 : at + 8 + length] if name == b"IDAT" else b""
        at += 12 + length
    raw = zlib.decompress(data)
    assert raw[1:5] == b"\xff\xff\xff\xff"  # the corner, after the row's filter
    assert png_of(svg.replace(">rank 3<", "> <")) != png  # the letters are really drawn


def test_a_hundred_thousand_ranks_are_one_picture_within_the_limit() -> None:
    window = make_window(ranks=8)
    grid = make_grid(window, None, "now")
    n = 100_000
    many = dataclasses.replace(grid, rank=list(range(n)), state=list(grid.state[:1]) * n, node=[-1] * n, note=[""] * n)
    png = png_of(grid_svg(many, "Incident 1"))
    assert len(png) <= PNG_BYTES_MAX and size_of(png)[0] >= 1200


@pytest.mark.parametrize("size", [(1200, 20_000), (9_000, 10)])
def test_what_is_too_large_is_refused_with_its_size(size: tuple[int, int]) -> None:
    with pytest.raises(NoPicture, match="too large"):
        png_of(f'<svg xmlns="http://www.w3.org/2000/svg" width="{size[0]}" height="{size[1]}"></svg>')


def test_without_a_font_there_is_no_picture_and_the_reason_is_said(no_font: None, diagnosis: Diagnosis) -> None:
    with pytest.raises(NoPicture) as refused:
        png_of(waits_svg(diagnosis, "Incident 1"))
    assert str(refused.value) == NO_FONT


def test_what_is_no_drawing_of_ours_is_refused() -> None:
    for svg in ("", "<p>", '<svg xmlns="http://www.w3.org/2000/svg" width="20" height="20"><broken'):
        with pytest.raises(NoPicture):
            png_of(svg)
