"""record.h and segment_layout.py say the same about every field: offset, size, order."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from nccl_instrument import tables
from nccl_instrument.agent.processes import segment_layout as segment
from tests.nccl_instrument.plugin.driver import PLUGIN_FOLDER

STRUCTS = {
    "SegmentHeader": segment.HEADER,
    "Section": segment.SECTION,
    "Identity": segment.IDENTITY,
    "CommRow": segment.COMM,
    "OpRow": segment.OP,
    "FlowRow": segment.FLOW,
    "TransferRow": segment.TRANSFER,
}
HEADER = PLUGIN_FOLDER / "record.h"


def _compiled(folder: Path, lines: list[str]) -> list[str]:
    source = folder / "layout.c"
    body = "\n".join(lines)
    source.write_text(f'#include <stddef.h>\n#include <stdio.h>\n#include "record.h"\nint main(void) {{\n{body}\n}}\n')
    subprocess.run(["gcc", "-std=c11", f"-I{PLUGIN_FOLDER}", source, "-o", folder / "layout"], check=True)
    return subprocess.run([folder / "layout"], capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.parametrize("struct", STRUCTS)
def test_every_field_lies_where_the_header_puts_it(struct: str, tmp_path: Path) -> None:
    dtype = STRUCTS[struct]
    fields = [(name, dtype.fields[name]) for name in dtype.names or () if dtype.fields]
    lines = [
        f'printf("{name} %zu %zu\\n", offsetof({struct}, {name}), sizeof((({struct} *)0)->{name}));'
        for name, _ in fields
    ]
    lines.append(f'printf("size %zu\\n", sizeof({struct}));')
    expected = [f"{name} {field[1]} {field[0].itemsize}" for name, field in fields]
    assert _compiled(tmp_path, lines) == [*expected, f"size {dtype.itemsize}"]


@pytest.mark.parametrize("struct", STRUCTS)
def test_no_field_of_the_header_is_missing(struct: str) -> None:
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.S)
    found = re.search(rf"typedef struct {struct} {{(.*?)}} {struct};", text, re.S)
    assert found
    names = re.findall(r"(\w+)(?:\[\d+\])?;", found[1])
    assert names == list(STRUCTS[struct].names or ())


def test_counters_have_the_same_names_in_the_same_order() -> None:
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.S)
    assert tuple(re.findall(r"X\((\w+)\)", text.split("#define X(name)")[0])) == segment.COUNTERS


def test_constants_and_codes_agree_with_the_header(tmp_path: Path) -> None:
    names = ["SEGMENT_HEADER_BYTES", "SEGMENT_MAJOR", "ROW_LIVE", "ROW_DONE", "COUNTERS"]
    flags = ["OP_NO_NETWORK", "OP_GRAPH", "OP_STOPS_LOST", "OP_FOREIGN", "OP_HAS_FLOWS", "OP_P2P"]
    lines = [f'printf("%d\\n", (int){name});' for name in [*names, *flags, "TRANSPORT_SOCKET", "DIRECTION_RECEIVE"]]
    constants = [segment.HEADER_BYTES, segment.MAJOR, segment.ROW_LIVE, segment.ROW_DONE, len(segment.COUNTERS)]
    expected = [*constants, *(getattr(tables, flag) for flag in flags), tables.SOCKET, tables.RECEIVE]
    assert [int(line) for line in _compiled(tmp_path, lines)] == expected


@pytest.mark.parametrize(
    ("array", "codes", "prefix"),
    [
        ("funcs", tables.FUNCS, ""),
        ("dtypes", tables.DTYPES, "nccl"),
        ("algos", tables.ALGOS, ""),
        ("protos", tables.PROTOS, ""),
    ],
)
def test_names_of_nccl_become_the_codes_of_the_tables(array: str, codes: tuple[str, ...], prefix: str) -> None:
    found = re.search(rf"{array}\[\] = {{(.*?)}};", (PLUGIN_FOLDER / "codes.c").read_text(), re.S)
    assert found
    names = re.findall(r'"(\w+)"', found[1])
    assert names == [codes[0], *(prefix + code for code in codes[1:])]


def test_rows_are_whole_cache_lines() -> None:
    assert [np.dtype(row).itemsize % 64 for row in (segment.COMM, segment.OP, segment.FLOW, segment.TRANSFER)] == [
        0
    ] * 4
