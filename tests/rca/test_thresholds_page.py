"""docs/thresholds.md lists every threshold people may change, as the code has it."""

from __future__ import annotations

from pathlib import Path

from rca.settings import limits

PAGE = Path(__file__).parents[2] / "docs" / "thresholds.md"


def test_the_page_lists_every_threshold_with_its_default_limits_and_unit() -> None:
    listed = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    assert listed == [
        f"| `{one.name}` | {one.about} | {one.default:,.10g} | {one.low:,.10g} … {one.high:,.10g} | {one.unit} |"
        for one in limits().values()
    ]
