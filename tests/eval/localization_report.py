"""What the rows of `localization` add up to: the suite's JSON object, and a table per fault with the misses under it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any, Final

from tests.eval.scoring import quantiles

Row = dict[str, Any]
TYPES: Final = ("comp_fail_stop", "comp_fail_slow", "comm_fail_stop", "comm_fail_slow")
WIDTH: Final = 34


def summary(rows: Sequence[Row], seed: int, overridden: list[str]) -> dict[str, Any]:
    """The suite's JSON object. Levels are shares of the faulty cases, None where there are none; whom incidents of healthy jobs
    blame counts among the blamed and the nodes, too."""
    faulty = [row for row in rows if not row["healthy"]]
    healthy = [row for row in rows if row["healthy"]]
    sizes = sorted({row["gpus"] for row in rows})
    return {
        "suite": "localization", "seed": seed, "settings_overridden": overridden, "cases": len(faulty),
        "by_size": {str(size): _levels([row for row in faulty if row["gpus"] == size]) for size in sizes},
        **_levels(faulty), **_blamed(rows), **_nodes(rows),
        "by_type": {name: _nodes([row for row in faulty if row["type"] == name]) for name in TYPES},
        "healthy": len(healthy), "false_incidents": sum(row["false_incident"] for row in rows),
        "undetected": sum(row["detect_s"] is None for row in faulty),
        "detect_s": quantiles(row["detect_s"] for row in faulty if row["detect_s"] is not None),
        "case_s": quantiles(row["took_s"] for row in rows), "case_cpu_s": quantiles(row["cpu_s"] for row in rows),
    }  # fmt: skip


def _levels(faulty: Sequence[Row]) -> dict[str, Any]:
    return {
        "cases": len(faulty),
        "rank_level": _share(faulty, lambda row: row["named"]),
        "machine_level": _share(faulty, lambda row: row["machine_level"]),
        "group_level": _share(faulty, lambda row: row["group_level"]),
        "misjudged": sum(row["misjudged"] for row in faulty),
        "component_right": _share(faulty, lambda row: row["component_right"]),
        "tied": sum(row["tied"] for row in faulty),
        **_blamed(faulty),
    }


def _blamed(rows: Sequence[Row]) -> dict[str, int]:
    return {name: sum(row[name] for row in rows) for name in ("wrongly_blamed", "blamed_beside")}


def _share(rows: Sequence[Row], holds: Callable[[Row], bool]) -> float | None:
    return round(sum(map(holds, rows)) / len(rows), 4) if rows else None


def _nodes(rows: Sequence[Row]) -> dict[str, float | None]:
    """Pulse §8.1, node by node: a normal node reported or a faulty one with a wrong type is a false positive."""
    right, wrong, missed, normal = (
        sum(row[name] for row in rows)
        for name in ("true_positives", "false_positives", "false_negatives", "true_negatives")
    )
    return {
        "precision": _ratio(right, right + wrong),
        "recall": _ratio(right, right + missed),
        "false_positive_rate": _ratio(wrong, wrong + normal),
    }


def _ratio(part: int, whole: int) -> float | None:
    return round(part / whole, 6) if whole else None


def table(rows: Sequence[Row]) -> str:
    """Readable: a line per fault of each row of the fault table, then the misses."""
    head = f"{'fault':{WIDTH}} cases named  node component blamed tied detect_s   slowdown"
    lines = [head, "-" * len(head)]
    faulty = [row for row in rows if not row["healthy"]]
    for name in dict.fromkeys(row["fault"] for row in faulty):
        lines.append(_line(name, [row for row in faulty if row["fault"] == name]))
    healthy = [row for row in rows if row["healthy"]]
    for name in dict.fromkeys(row["fault"] for row in healthy):
        same = [row for row in healthy if row["fault"] == name]
        n_false = sum(row["false_incident"] for row in same)
        lines.append(f"{'healthy: ' + name:{WIDTH}} {len(same):5} {n_false} false incidents")
    return "\n".join([*lines, "", *misses(rows)])


def _line(name: str, rows: Sequence[Row]) -> str:
    n_named, n_nodes, n_right, n_tied, n_blamed = (
        sum(row[key] for row in rows) for key in ("named", "machine_level", "component_right", "tied", "wrongly_blamed")
    )
    found = [row["detect_s"] for row in rows if row["detect_s"] is not None]
    slow = [row["slowdown"] for row in rows if row["slowdown"]]
    after = f"{median(found):8.1f}" if found else "   never"
    by = f"{min(slow):.2f} to {max(slow):.2f}" if slow else ""
    return f"{name:{WIDTH}} {len(rows):5} {n_named:5} {n_nodes:5} {n_right:9} {n_blamed:6} {n_tied:4} {after}   {by}"


def is_miss(row: Row) -> bool:
    return bool(row["false_incident"] or not (row["healthy"] or (row["named"] and row["component_right"])))


def misses(rows: Sequence[Row]) -> list[str]:
    """Per miss: what was the case, what was said, how to repeat it."""
    found = [row for row in rows if is_miss(row)]
    return [
        f"{len(found)} of {len(rows)} cases missed{':' if found else '.'}",
        *(one for row in found for one in told(row)),
    ]


def _missed(row: Row) -> str:
    return "named, wrong component" if row["named"] else "tied" if row["tied"] else "not named"


def told(row: Row) -> list[str]:
    """A miss in a few lines."""
    place = row["layout"]
    where = f"TP {place['tp']} × PP {place['pp']} × DP {place['dp']} × EP {place['ep']}, {row['transport']}, {row['dp_reduce']}"
    amount = f" {row['amount']:g}" if row["amount"] else ""
    slowed = f", job {row['slowdown']:.2f}× slower" if row["slowdown"] else ""
    what = "FALSE INCIDENT" if row["false_incident"] else _missed(row) if is_miss(row) else "right"
    truth = "" if row["healthy"] else f" of {row['truth'] or 'everybody'}"
    said = dict.fromkeys(row["said"]) or ["nothing: no incident"]
    return [
        f"- {row['fault']}{amount}{truth} at {row['gpus']} GPUs ({where}{slowed}): {what}",
        *(f"    said: {one}" for one in said),
        f"    {row['command']}",
    ]
