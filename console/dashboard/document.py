"""What the OpenAPI document says beyond what each view declares: answers that any request may get, examples, one Error.

A hook after the generator (settings.py names it). What a view cannot know, because it never sees the request, is
documented here once: no session, no right, too many, a body nobody can read, the database away.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from console.dashboard.examples import EXAMPLES
from console.dashboard.schema import ERROR

Document = dict[str, Any]
ERROR_REF: Final = {"$ref": "#/components/schemas/Error"}
UNSAFE: Final = ("post", "put", "patch", "delete")
ALWAYS: Final = {
    "400": "The request cannot be understood: `fields` names what is wrong with its fields.",
    "401": "No session, and no API token that is good.",
    "406": "The Accept header takes no answer of ours.",
    "429": "Too many requests of this caller, or too many unknown tokens from this address: wait for Retry-After seconds.",
    "503": "The database does not answer; nothing was changed.",
}
OF_ACTS: Final = {"403": "Your role does not allow this, or the CSRF token of the session is missing."}
OF_OBJECTS: Final = {"404": "There is nothing here, or it belongs to another team."}
OF_BODIES: Final = {
    "408": "The body did not come in time.",
    "413": "The body is too large.",
    "415": "The body is of a kind that nobody reads here.",
}
SAID_OF: Final = {"409": "It has changed since, or is in no state for this.", "412": "It has changed since: If-Match."}


def complete(result: Document, generator: Any, request: Any, public: bool) -> Document:
    """The hook: `result` with what every operation may answer, with examples, and with the error as a component."""
    result["components"].setdefault("schemas", {})["Error"] = _error()
    for path, operation, method in _operations(result):
        _add_answers(operation, path, method)
        _add_example(operation)
    result["paths"] = _with_references(result["paths"])
    return result


def _error() -> Document:
    fields = {"type": "object", "additionalProperties": True, "description": "Field → what is wrong with it."}
    return {**ERROR, "properties": {**ERROR["properties"], "fields": fields}, "description": "Why not, in a sentence."}


def _operations(document: Document) -> Iterator[tuple[str, Document, str]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, operation, method


def _add_answers(operation: Document, path: str, method: str) -> None:
    said = dict(ALWAYS)
    said |= OF_ACTS if method in UNSAFE else {}
    said |= OF_OBJECTS if "{" in path else {}
    said |= OF_BODIES if method in UNSAFE else {}
    answers = operation["responses"]
    for status, meaning in said.items():
        answer = answers.setdefault(status, {"content": {"application/json": {"schema": ERROR_REF}}})
        answer["description"] = answer.get("description") or meaning
    for status, meaning in SAID_OF.items():
        if status in answers:
            answers[status]["description"] = answers[status].get("description") or meaning
    operation["responses"] = dict(sorted(answers.items()))


def _add_example(operation: Document) -> None:
    """The body as somebody would send it."""
    for media in operation.get("requestBody", {}).get("content", {}).values():
        if operation["operationId"] in EXAMPLES:
            media["example"] = EXAMPLES[operation["operationId"]]


def _with_references(part: Any) -> Any:
    """The same with the error as a reference, wherever it is written out."""
    if part == ERROR:
        return ERROR_REF
    if isinstance(part, dict):
        return {key: _with_references(inner) for key, inner in part.items()}
    return [_with_references(inner) for inner in part] if isinstance(part, list) else part
