"""A rule whose code changed has another VERSION: stored findings say which formula they came from."""

from __future__ import annotations

import ast
import hashlib
import json

import pytest

from tests.architecture.sources import ROOT, tree_of

RULES = sorted(path.stem for path in (ROOT / "rca/rules").glob("*.py") if path.stem != "__init__")
TABLE = ROOT / "tests/architecture/rule_versions.json"


def code_and_version(rule: str) -> tuple[str, int]:
    """Hash of the rule's code, the same however it is laid out and documented and wherever its helpers lie; VERSION apart."""
    tree = tree_of(ROOT / "rca/rules" / f"{rule}.py")
    tree.body = [one for one in tree.body if not isinstance(one, ast.Import | ast.ImportFrom)]
    version = 0
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        version = next((ast.literal_eval(one.value) for one in body if _names_version(one)), version)
        node.body = [one for one in body if not _is_text(one) and not _names_version(one)]  # type: ignore[attr-defined]
    return hashlib.sha256("\n".join(map(_told, ast.walk(tree))).encode()).hexdigest()[:16], version


def _told(node: ast.AST) -> str:
    """A node by itself; ast.dump is another text in every Python."""
    values = [value for _, value in ast.iter_fields(node) if isinstance(value, str | int | float | bytes)]
    return f"{type(node).__name__} {values}"


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _names_version(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "VERSION"


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_whose_code_changed_has_another_version(rule: str) -> None:
    known = json.loads(TABLE.read_text()).get(rule, {})
    code, version = code_and_version(rule)
    if known == {"code": code, "version": version}:
        return
    line = f'"{rule}": {{"code": "{code}", "version": {version}}}'
    raised = f"Put {line} into {TABLE.relative_to(ROOT)}."
    assert known.get("version") != version, (
        f"rca/rules/{rule}.py has changed and is still version {version}. Raise its VERSION if it may find anything else, "
        f"or say anything else, than before. {raised}"
    )
    pytest.fail(f"rca/rules/{rule}.py is version {version} now. {raised}")


def test_the_table_has_no_rules_that_do_not_exist() -> None:
    assert sorted(json.loads(TABLE.read_text())) == RULES
