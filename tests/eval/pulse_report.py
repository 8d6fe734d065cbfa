"""What the experiments of `pulse` add up to: the suite's JSON object, the paper's Table 3 with ours beside it, and the misses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tests.eval.localization_report import TYPES
from tests.eval.pulse_cases import FAILURES

Row = dict[str, Any]
PAPER: Final = {"CPU contention": "group", "CPU throttling": "group"}  # of Pulse; all others at machine level
PAPER_OPS: Final = {
    "Network congestion": "group", "CPU contention": "misjudged", "NIC down": "group", "PCIe contention": "group",
    "CPU throttling": "misjudged", "PCIe downgrade": "group", "NIC-GPU cross NUMA binding": "group",
    "Memory alignment": "group",
}  # fmt: skip


def scores(rows: Sequence[Row]) -> dict[str, Any]:
    """Levels and node counts of these rows, of ours or of the comparison's."""
    return {
        "experiments": len(rows),
        "machine_level": _share(rows, "machine_level"), "group_level": _share(rows, "group_level"),
        "misjudged": sum(row["misjudged"] for row in rows), **_nodes(rows),
    }  # fmt: skip


def summary(rows: Sequence[Row], seed: int, overridden: Sequence[str]) -> dict[str, Any]:
    """The suite's object without the parts that are measured apart."""
    ops = [{**row["op_level"], "type": row["type"], "failure": row["failure"]} for row in rows]
    return {
        "suite": "pulse", "seed": seed, "settings_overridden": list(overridden), **scores(rows),
        "by_type": {name: _nodes([row for row in rows if row["type"] == name]) for name in TYPES},
        "failures": sum(bool(_of(rows, name)) for name in FAILURES),
        "failures_at_machine_level": sum(is_at_machine(_of(rows, name)) for name in FAILURES),
        "op_level": {
            **scores(ops), "by_type": {name: _nodes([row for row in ops if row["type"] == name]) for name in TYPES},
            "failures_at_machine_level": sum(is_at_machine(_of(ops, name)) for name in FAILURES),
        },
        "named": _share(rows, "named"), "component_right": _share(rows, "component_right"),
        "wrongly_blamed": sum(row["wrongly_blamed"] for row in rows),
        "undetected": sum(row["detect_s"] is None for row in rows),
        "false_incidents": sum(row["false_incident"] for row in rows),
        "case_s": round(sum(row["took_s"] for row in rows) / len(rows), 1) if rows else None,
    }  # fmt: skip


def is_at_machine(rows: Sequence[Row]) -> bool:
    """A failure counts only when every one of its runs is at machine level."""
    return bool(rows) and all(row["machine_level"] for row in rows)


def table(rows: Sequence[Row]) -> str:
    """Table 3 with what was measured here: machine, group, misjudged and missed runs of each failure; then the misses."""
    head = f"{'failure':28} {'setting':28} runs machine group misjudged  ops: machine group misjudged   paper, its ops"
    lines = [head, "-" * len(head)]
    for failure in FAILURES:
        for setting in dict.fromkeys(row["setting"] for row in _of(rows, failure)):
            lines.append(_line(failure, setting, [row for row in _of(rows, failure) if row["setting"] == setting]))
    return "\n".join([*lines, "", *misses(rows)])


def _line(failure: str, setting: str, rows: Sequence[Row]) -> str:
    ours = [sum(row[key] for row in rows) for key in ("machine_level", "group_level", "misjudged")]
    ops = [sum(row["op_level"][key] for row in rows) for key in ("machine_level", "group_level", "misjudged")]
    paper = f"{PAPER.get(failure, 'machine')}, {PAPER_OPS.get(failure, 'machine')}"
    return (
        f"{failure:28} {setting:28} {len(rows):4} {ours[0]:7} {ours[1]:5} {ours[2]:9}"
        f"  {ops[0]:12} {ops[1]:5} {ops[2]:9}   {paper}"
    )


def is_miss(row: Row) -> bool:
    return bool(
        row["false_incident"] or not row["machine_level"] or row["wrongly_blamed"] or not row["component_right"]
    )


def misses(rows: Sequence[Row]) -> list[str]:
    found = [row for row in rows if is_miss(row)]
    said = f"{len(found)} of {len(rows)} experiments are not as they should be{':' if found else '.'}"
    return [said, *(line for row in found for line in told(row))]


def told(row: Row) -> list[str]:
    """A miss in a few lines."""
    words = dict.fromkeys(row["said"]) or ["nothing: no incident"]
    return [
        f"- {row['failure']} {row['severity']}, {row['setting']}, of {row['ranks'][:8]}: {_verdict(row)}",
        *(f"    said: {one}" for one in words),
        f"    {row['command']}",
    ]


def _verdict(row: Row) -> str:
    if row["false_incident"]:
        return "FALSE INCIDENT before the fault"
    if not is_miss(row):
        return "right"
    if row["machine_level"]:
        return "machine right, " + ("others blamed too" if row["wrongly_blamed"] else "component wrong")
    return "misjudged" if row["misjudged"] else "group only" if row["group_level"] else "missed"


def _of(rows: Sequence[Row], failure: str) -> list[Row]:
    return [row for row in rows if row["failure"] == failure]


def _share(rows: Sequence[Row], key: str) -> float | None:
    return round(sum(row[key] for row in rows) / len(rows), 4) if rows else None


def _nodes(rows: Sequence[Row]) -> dict[str, float | None]:
    """Pulse §8.1, node by node: a normal node reported or a faulty one with a wrong type is a false positive."""
    names = ("true_positives", "false_positives", "false_negatives", "true_negatives")
    right, wrong, missed, normal = (sum(row[name] for row in rows) for name in names)
    return {
        "precision": _ratio(right, right + wrong), "recall": _ratio(right, right + missed),
        "false_positive_rate": _ratio(wrong, wrong + normal),
    }  # fmt: skip


def _ratio(part: int, whole: int) -> float | None:
    return round(part / whole, 6) if whole else None
