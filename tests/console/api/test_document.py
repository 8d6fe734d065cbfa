"""The OpenAPI document tells all: schemathesis finds no 5xx and no answer, header or shape that is not in it.

Every operation is asked by an administrator of a team that has one of everything, with requests made from the document,
right and wrong ones. In CI a handful of each, the same every time; a longer run by hand:
`DIOGENES_SCHEMA_EXAMPLES=500 python -m pytest tests/console/api/test_document.py`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any, Final

import pytest
import schemathesis
from django.core.cache import cache
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections, transaction
from drf_spectacular.generators import SchemaGenerator
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from console.accounts.models import Role
from console.accounts.secrets import make_api_token
from console.dashboard.examples import EXAMPLES
from console.incidents.pictures import why_not_api
from tests.console.walk.world import World, by_token, make_world, signed_in

pytestmark = pytest.mark.django_db
EXAMPLES_EACH: Final = int(os.environ.get("DIOGENES_SCHEMA_EXAMPLES", "5"))
CHECKS: Final = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
DOCUMENTED_5XX: Final = {("GET", "/api/v1/incidents/{number}/why-not")}  # 503: no worker runs here


@pytest.fixture(scope="session")
def document() -> dict[str, Any]:
    made: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)
    return made


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, settings: Any, tmp_path: Any) -> Iterator[World]:
    monkeypatch.setattr(why_not_api, "WAIT_SECONDS", 0.0)
    settings.BUNDLES_FOLDER = tmp_path / "bundles"
    settings.API_REQUESTS_PER_MINUTE = 10**6
    made = make_world()
    for signal in (request_started, request_finished):  # as Django's own test client: the connection is the test's
        signal.disconnect(close_old_connections)
    yield made
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


def operations(document: dict[str, Any], world: World) -> Iterator[Any]:
    schema = schemathesis.openapi.from_dict(document)
    schema.config.generation.update(with_security_parameters=False)
    schema.app = get_wsgi_application()
    for found in schema.get_all_operations():
        yield found.ok()


def ids_of(world: World) -> dict[str, Any]:
    """Parameters by their names in the document."""
    named = {
        name.split(":")[-1].rstrip(">"): value
        for name, value in world.ids.items()
        if name.startswith("<") and "uuid" not in name
    }
    return {**named, "number": world.incident.pk}


def test_no_operation_fails_or_answers_what_is_not_documented(document: dict[str, Any], world: World) -> None:
    token = make_api_token(world.team, "schemathesis", Role.ADMIN)[1]
    headers, wrong = {"Authorization": f"Token {token}", "Accept-Encoding": "identity"}, []
    for operation in operations(document, world):
        for failure in failures_of(operation, headers, ids_of(world)):
            wrong.append(f"{operation.method.upper()} {operation.path}: {failure}")
    assert not wrong, "\n".join(wrong)


def failures_of(operation: Any, headers: dict[str, str], ids: dict[str, Any]) -> list[str]:
    """What is wrong with some answers of one operation; nothing that was asked for stays."""
    found: dict[str, None] = {}

    @given(case=operation.as_strategy(), is_known=st.booleans())
    @settings(
        max_examples=EXAMPLES_EACH,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def ask(case: Any, is_known: bool) -> None:
        if is_known:  # else whatever the document lets one say
            case.path_parameters = {name: ids.get(name, 10**9) for name in case.path_parameters or {}}
        cache.clear()
        with transaction.atomic():
            answer = case.call(headers=headers)
            transaction.set_rollback(True)
        for said in said_against(case, answer):
            found[said] = None

    ask()
    return list(found)


def said_against(case: Any, answer: Any) -> Iterator[str]:
    is_told = (case.operation.method.upper(), case.operation.path) in DOCUMENTED_5XX and answer.status_code == 503
    checks = CHECKS[1:] if is_told else CHECKS
    try:
        case.validate_response(answer, checks=checks)
    except (schemathesis.errors.SchemathesisError, AssertionError, BaseExceptionGroup) as failure:
        inner = failure.exceptions if isinstance(failure, BaseExceptionGroup) else [failure]
        for one in inner:
            yield f"{answer.status_code} {type(one).__name__}: {str(one)[:300]!r} {answer.content[:200]!r}"


def test_every_body_has_an_example_that_is_taken(document: dict[str, Any], world: World) -> None:
    """What the page shows can be sent as it is: it is understood, whatever the state of the world."""
    bodies = {
        (path, method): operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if "application/json" in operation.get("requestBody", {}).get("content", {})
    }
    assert {one["operationId"] for one in bodies.values()} == set(EXAMPLES)
    script = by_token(world.team, Role.ADMIN)
    signed = signed_in("ada", world.team)
    wrong = []
    for (path, method), operation in bodies.items():
        body = EXAMPLES[operation["operationId"]]
        assert operation["requestBody"]["content"]["application/json"]["example"] == body
        who = signed if operation["operationId"] == "view_save" else script
        with transaction.atomic():
            answer = who.generic(method.upper(), path.format(**ids_of(world)), json.dumps(body), "application/json")
            transaction.set_rollback(True)
        if answer.status_code not in (200, 201, 202, 204, 409) and not _is_about_the_world(answer):
            wrong.append((operation["operationId"], answer.status_code, answer.content[:200]))
    assert not wrong, "\n".join(map(str, wrong))


def _is_about_the_world(answer: Any) -> bool:
    """The body was understood, and what it names is not in this world: a root, somebody's name, a job that runs."""
    return answer.status_code in (400, 404) and answer.json()["code"] in ("bad_act", "not_found")


def test_the_document_is_of_the_version_it_says_and_names_errors_once(document: dict[str, Any]) -> None:
    assert document["openapi"] == "3.1.0"
    acknowledge = document["paths"]["/api/v1/incidents/{number}/acknowledge"]["post"]["responses"]
    assert {"200", "400", "401", "403", "404", "409", "412", "415", "429", "503"} <= set(acknowledge)
    assert all(
        answer["description"]
        for answer in acknowledge.values()
        if "content" in answer and answer is not acknowledge["200"]
    )
    assert acknowledge["403"]["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Error"}
