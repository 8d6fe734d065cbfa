"""docs/wire-format.md against tables.py: every column on the page with its type, no column that does not exist.

And every field Mycroft lists (Table 2 and the two logs of §4.2) is mapped to columns that exist.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nccl_instrument import wire
from nccl_instrument.tables import GROUPS, TABLES, Column

PAGE = (Path(__file__).parents[2] / "docs" / "wire-format.md").read_text()

TABLE_2 = {
    "Metadata": ("IP", "comm_id", "Gid", "GPU_id", "Channel_id", "QP_id"),
    "Operation": ("timestamps", "op_name", "op_seq", "msg_size"),
    "Chunk": ("stuck_time", "total_chunks", "GPU_ready", "RDMA_transmitted", "RDMA_done"),
}
LOGS = {
    "completion log": (
        "start timestamp", "end timestamp", "bytes transmitted", "local NIC information", "remote NIC information",
        "other metadata",
    ),
    "state log": ("period", "accumulated progress in the interval", "SM copies", "RDMA writes"),
}  # fmt: skip
PAPER = {(f"Table 2, {category}", field) for category, fields in TABLE_2.items() for field in fields} | {
    (f"§4.2, {log}", field) for log, fields in LOGS.items() for field in fields
}


def documented() -> dict[str, dict[str, str]]:
    """table → column → type, as the page has it."""
    found: dict[str, dict[str, str]] = {}
    for part in PAGE.split("\n### ")[1:]:
        name = re.match(r"`(\w+)`", part)
        assert name, part[:40]
        section = part.split("\n## ")[0]
        found[name[1]] = dict(re.findall(r"^\| `(\w+)` \| ([^|]+?) \| [^|]+ \|$", section, re.MULTILINE))
    found["live_op"] = found["op"] | found["live_op"]
    return found


def type_of(column: Column) -> str:
    kind = column.kind.removeprefix("<")
    return kind + (f" × {column.width}" if column.width > 1 else "") + (" Δ" if column.delta else "")


@pytest.mark.parametrize("table", sorted(TABLES))
def test_the_page_has_every_column_of_the_table_and_no_other(table: str) -> None:
    assert documented()[table] == {column.name: type_of(column) for column in TABLES[table]}


def test_the_page_has_no_table_that_does_not_exist() -> None:
    assert documented().keys() == TABLES.keys()


def mapped() -> dict[tuple[str, str], tuple[list[str], str]]:
    """(place in the paper, field) → (columns, reason)."""
    rows = re.findall(r"^\| ((?:Table 2|§4\.2), [^|]+?) \| ([^|]+?) \| ([^|]*?) \| ([^|]*?) ?\|$", PAGE, re.MULTILINE)
    return {(place, field): (re.findall(r"`(\w+\.\w+)`", columns), why) for place, field, columns, why in rows}


def test_every_field_of_the_paper_is_mapped() -> None:
    assert mapped().keys() == PAPER


def test_every_mapping_names_columns_that_exist_or_gives_the_reason() -> None:
    known = {f"{table}.{column.name}" for table, columns in TABLES.items() for column in columns}
    for field, (columns, why) in mapped().items():
        assert columns or why, f"{field} is neither mapped nor explained"
        assert set(columns) <= known, f"{field} names columns that do not exist"


def test_the_page_states_the_version_and_the_limits_in_force() -> None:
    assert f"Version {wire.MAJOR}.{wire.MINOR}." in PAGE
    limits = f"{wire.BATCH_BYTES_MAX >> 20} MiB on the wire, {wire.ROWS_BYTES_MAX >> 20} MiB of rows, "
    assert f"{limits}{wire.ROWS_MAX:,} rows a table, {wire.SECTIONS_MAX} sections of {wire.TABLES_MAX} tables" in PAGE


def test_the_page_says_which_tables_go_row_by_row() -> None:
    assert f"{wire.BY_ROWS:#x}: this table is sent by rows" in PAGE
    assert f"Agents do so up to {wire.BY_ROWS_MAX} rows" in PAGE


def test_the_page_names_the_tables_of_every_section() -> None:
    for group, held in GROUPS.items():
        assert f"| `{group}` | {', '.join(f'`{table}`' for table in held)} |" in PAGE
