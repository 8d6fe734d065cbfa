"""Sizes, names and openings that style asks of every module."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.architecture.sources import ROOT, python_files, tracked_files, tree_of

FUNCTION_LINES_MAX = 60
MODULE_LINES_MAX = 400
BANNED_ALONE = {"event", "data", "info", "manager", "handler", "helper", "util", "item", "core", "common", "utils",
                "helpers", "handlers", "managers", "events", "items", "misc"}  # fmt: skip
BANNED_IN_CODE = {"event", "data", "info", "manager", "handler", "helper", "util", "item"}
STAY = {  # bytes of which nothing is known yet
    "ingest/door/gate.py: data_received(data)",  # asyncio's name
}
Function = ast.FunctionDef | ast.AsyncFunctionDef


def arguments_of(function: Function) -> list[str]:
    given = function.args
    found = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    return [argument.arg for argument in found if argument]


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_no_function_is_longer_than_a_page() -> None:
    long = [
        f"{named(path)}:{node.lineno} {node.name} {node.end_lineno - node.lineno + 1}"
        for path in python_files()
        for node in ast.walk(tree_of(path))
        if isinstance(node, Function) and node.end_lineno and node.end_lineno - node.lineno >= FUNCTION_LINES_MAX
    ]
    assert long == []


def test_no_module_is_longer_than_four_hundred_lines() -> None:
    sources = python_files(with_tests=True) + [
        path for path in tracked_files() if path.suffix in {".c", ".h", ".ts", ".tsx", ".css"}
    ]
    long = {named(path): n for path in sources if (n := len(path.read_text().splitlines())) > MODULE_LINES_MAX}
    assert long == {}


def test_no_module_or_folder_has_a_name_that_says_nothing() -> None:
    parts = {part for path in python_files() for part in path.relative_to(ROOT).with_suffix("").parts}
    assert parts & BANNED_ALONE == set()


def test_no_function_or_parameter_has_a_name_that_says_nothing() -> None:
    functions = [
        (named(path), node) for path in python_files() for node in ast.walk(tree_of(path)) if isinstance(node, Function)
    ]
    empty = {f"{module}: {node.name}" for module, node in functions if node.name in BANNED_IN_CODE}
    for module, node in functions:
        empty |= {f"{module}: {node.name}({name})" for name in arguments_of(node) if name in BANNED_IN_CODE}
    assert empty - STAY == set()


def test_every_module_opens_with_what_it_is_for() -> None:
    silent = [named(path) for path in python_files() if path.stat().st_size and not ast.get_docstring(tree_of(path))]
    assert silent == []


def test_every_function_says_its_types() -> None:
    untyped = [
        f"{named(path)}:{node.lineno} {node.name}"
        for path in python_files()
        for node in ast.walk(tree_of(path))
        if isinstance(node, Function) and node.returns is None
    ]
    assert untyped == []


def test_no_tracked_text_names_the_machine_it_was_written_on() -> None:
    # Split, so that this file does not find itself.
    machine = re.compile("|".join(["/" + "work/", "/root" + "/", "/tmp/" + "diogenes/", "/home/" + r"[a-z]+/"]))
    found = [
        f"{named(path)}: {match.group()}"
        for path in tracked_files()
        if path.suffix not in {".png", ".npz", ".bin", ".woff2", ".ico"}
        for match in machine.finditer(path.read_text(errors="ignore"))
    ]
    assert found == []
