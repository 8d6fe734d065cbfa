"""Who may do what at which address: a line for every route and method of the URL configuration.

A route that is not here fails the walk, and so does a method that is here and not there. The need is the least role; what
is not listed is 405 for everybody who is signed in. A route that names an object is 404 for other teams, always.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from django.core.files.uploadedfile import SimpleUploadedFile

from tests.console.walk.world import WORD

Need = Literal["anyone", "signed in", "viewer", "responder", "admin"]
"""signed in: whoever has a session, of whatever team."""


@dataclass(frozen=True, slots=True)
class Act:
    """A request that whoever may do it is answered with one of `answers`. body: of the world, or None for an empty one."""

    method: str
    need: Need
    body: Any = None
    query: str = ""
    answers: tuple[int, ...] = (200, 201, 202, 204)
    is_form: bool = False


def _look(query: str = "", *answers: int) -> tuple[Act, ...]:
    return (Act("GET", "viewer", query=query, answers=answers or (200,)),)


def _post(need: Need, *answers: int, is_form: bool = False, **body: Any) -> Act:
    return Act("POST", need, body, answers=answers or (200, 201, 202), is_form=is_form)


def _respond(*answers: int, **body: Any) -> tuple[Act, ...]:
    return (_post("responder", *answers, **body),)


MATCHERS: Final = [{"field": "job", "values": ["x"]}]
DESTINATION: Final = {"name": "new", "kind": "pagerduty", "settings": {"routing_key": "b" * 32}}
INC: Final = "api/v1/incidents"
JOB: Final = "api/v1/jobs"

EXPECTED: Final[dict[str, tuple[Act, ...]]] = {
    # ---- pages ----
    "page": (Act("GET", "signed in", answers=(200, 503)),),  # 503: the front end is not built
    "signin": (Act("GET", "anyone"), Act("POST", "anyone", {}, answers=(401,), is_form=True)),
    "signin/oidc": (Act("POST", "anyone", {}, answers=(404,), is_form=True),),  # single sign-on is off
    "signin/oidc/callback": (Act("GET", "anyone", answers=(404,)),),
    "signin/<str:secret>": (
        Act("GET", "anyone", answers=(401,)),
        Act("POST", "anyone", {}, answers=(401,), is_form=True),
    ),
    "signout": (Act("POST", "anyone", {}, answers=(302,), is_form=True),),
    "hooks/pagerduty/<uuid:key>": (Act("POST", "anyone", {"event": {}}, answers=(401,)),),  # its signature is missing
    # ---- about the caller, the team, the installation ----
    "api/v1/session": _look(),
    "api/v1/now": _look(),
    "api/v1/scorecard": _look(),
    "api/v1/nodes": _look(),
    "api/v1/nodes/<str:name>": _look(),
    "api/v1/recurrence": _look(),
    "api/v1/schema": _look(),
    "api/v1/docs": _look(),
    # ---- incidents ----
    INC: _look(f"?team={WORD}-team&q={WORD}"),
    f"{INC}/acts": (_post("responder", verb="comment", note="x", targets=[{"number": 1}]),),
    f"{INC}/<int:number>": _look(),
    f"{INC}/<int:number>/diagnoses/<int:revision>": _look(),
    f"{INC}/<int:number>/grid": _look(),
    f"{INC}/<int:number>/grid/at": _look("?at_ns=1", 400),  # nothing was ever heard of its attempt
    f"{INC}/<int:number>/grid/layer": _look("?by=op_lag"),
    f"{INC}/<int:number>/moments": _look(),
    f"{INC}/<int:number>/topology": _look(),
    f"{INC}/<int:number>/standing": _look(),
    f"{INC}/<int:number>/lanes": _look(),
    f"{INC}/<int:number>/window": (Act("GET", "responder"),),
    f"{INC}/<int:number>/why-not": _look("?rank=0", 200, 503),  # 503: no worker
    f"{INC}/<int:number>/dumps": (*_look(), _post("responder", 201, 400)),  # 400: nobody is there to ask
    f"{INC}/<int:number>/dumps.zip": (Act("GET", "responder", answers=(200, 400)),),  # 400: nobody has answered
    f"{INC}/<int:number>/stacks": _look(),
    f"{INC}/<int:number>/stacks/<int:rank>": _look(),
    f"{INC}/<int:number>/recorder": _look(),
    f"{INC}/<int:number>/stages": _look(),
    f"{INC}/<int:number>/network": _look(),
    f"{INC}/<int:number>/network/epochs": _look(),
    f"{INC}/<int:number>/tickets": _look(),
    f"{INC}/<int:number>/neighbours": _look(),
    f"{INC}/<int:number>/evidence": (*_look(), _post("responder", 202, 429)),
    f"{INC}/<int:number>/evidence/<int:bundle_id>": (Act("GET", "responder", answers=(404,)),),  # no file was built
    f"{INC}/<int:number>/post-mortem": _look(),
    f"{INC}/<int:number>/acknowledge": _respond(version=1),
    f"{INC}/<int:number>/unacknowledge": _respond(409, version=1),  # nobody has acknowledged it
    f"{INC}/<int:number>/resolve": _respond(version=1, reason="x"),
    f"{INC}/<int:number>/reopen": _respond(409, version=1),
    f"{INC}/<int:number>/diagnose": _respond(),
    f"{INC}/<int:number>/assign": _respond(version=1, assignee=""),
    f"{INC}/<int:number>/attach": _respond(404, version=1, root=10**9),
    f"{INC}/<int:number>/detach": _respond(400, version=1),
    f"{INC}/<int:number>/review": _respond(alarm="real", verdict="right"),
    f"{INC}/<int:number>/comments": _respond(text="x"),
    # ---- silences and saved views ----
    "api/v1/silences": (*_look(), _post("responder", matchers=MATCHERS, minutes=5, reason="x")),
    "api/v1/silences/preview": (_post("responder", matchers=MATCHERS),),
    "api/v1/silences/<int:silence_id>": (Act("DELETE", "responder"),),
    "api/v1/views": (*_look(), _post("responder", name="v", query="", shared=True)),
    "api/v1/views/<int:view_id>": (Act("DELETE", "responder"),),
    # ---- jobs ----
    JOB: _look(),
    f"{JOB}/<int:job_id>": _look(),
    f"{JOB}/<int:job_id>/grid": _look(),
    f"{JOB}/<int:job_id>/grid/at": _look("?at_ns=1", 400),
    f"{JOB}/<int:job_id>/grid/layer": _look("?by=stack_class"),
    f"{JOB}/<int:job_id>/moments": _look(),
    f"{JOB}/<int:job_id>/settings": (
        *_look(),
        Act("PATCH", "responder", {"changes": {}, "reason": "x"}, answers=(200, 400)),
    ),
    f"{JOB}/<int:job_id>/pause": (
        _post("responder", reason="x", minutes=5),
        Act("DELETE", "responder", answers=(200, 400)),
    ),
    f"{JOB}/<int:job_id>/wanted-pace": _respond(200, 400, reason="x"),
    f"{JOB}/<int:job_id>/triggers": _respond(200, 400, note="x"),
    f"{JOB}/<int:number>/dumps": (*_look(), _post("responder", 201, 400)),
    f"{JOB}/<int:number>/stacks": _look(),
    f"{JOB}/<int:number>/stacks/<int:rank>": _look(),
    f"{JOB}/<int:number>/recorder": _look(),
    f"{JOB}/<int:job_id>/figures/throughput": _look(),
    f"{JOB}/<int:job_id>/figures": _look(),
    f"{JOB}/<int:job_id>/looks": _look(),
    f"{JOB}/<int:job_id>/ranks/<int:rank>": _look(),
    f"{JOB}/<int:job_id>/question": _look(),
    f"{JOB}/<int:job_id>/question.csv": _look("?per=kind"),
    f"{JOB}/<int:job_id>/question.parquet": _look("?measure=ops"),
    f"{JOB}/<int:job_id>/stages": _look(),
    f"{JOB}/<int:job_id>/network": _look(),
    f"{JOB}/<int:job_id>/network/epochs": _look(),
    f"{JOB}/<int:job_id>/parallelism": _look("", 200, 404),
    f"{JOB}/<int:job_id>/stages/<int:window_id>": _look(),
    # ---- bundles ----
    "api/v1/bundles": (_post("responder", 202, is_form=True, file=lambda: SimpleUploadedFile("d.zip", b"PK")),),
    "api/v1/bundles/<slug:key>": _look(),
    "api/v1/bundles/<slug:key>/stacks/<int:rank>": _look(),
    # ---- destinations and deliveries ----
    "api/v1/destinations": (*_look(), _post("admin", **DESTINATION)),
    "api/v1/destinations/preview": (_post("admin", 200, title_template="{job}"),),
    "api/v1/destinations/<int:destination_id>": (
        Act("GET", "admin"),
        Act("PATCH", "admin", {"enabled": False}, answers=(200, 400)),
        Act("DELETE", "admin"),
    ),
    "api/v1/destinations/<int:destination_id>/test": (_post("admin", 201),),
    "api/v1/deliveries": _look(),
    "api/v1/deliveries/<int:delivery_id>": _look(),
    "api/v1/deliveries/<int:delivery_id>/replay": _respond(201),
    # ---- agents' tokens, and who did what ----
    "api/v1/audit": (Act("GET", "admin"),),
    "api/v1/audit.csv": (Act("GET", "admin"),),
    "api/v1/api-tokens": (Act("GET", "admin"), _post("admin", 201, label="x", role="viewer")),
    "api/v1/api-tokens/<int:api_token_id>": (Act("DELETE", "admin"),),
    "api/v1/api-tokens/<int:api_token_id>/rotate": (_post("admin", 201),),
    "api/v1/tokens": (Act("GET", "admin"), _post("admin", 201, label="x")),
    "api/v1/tokens/<int:token_id>": (Act("DELETE", "admin"),),
}

INTO_ANOTHER_TEAM: Final[tuple[tuple[str, Any], ...]] = (
    ("api/v1/tokens", {"label": "x", "team": f"{WORD}-team"}),
    ("api/v1/api-tokens", {"label": "x", "role": "viewer", "team": f"{WORD}-team"}),
    ("api/v1/destinations", {**DESTINATION, "team": f"{WORD}-team"}),
    ("api/v1/silences", {"matchers": MATCHERS, "minutes": 5, "reason": "x", "team": f"{WORD}-team"}),
    ("api/v1/silences/preview", {"matchers": MATCHERS, "team": f"{WORD}-team"}),
)
"""What names a team in its body: by an administrator of another one it is refused."""


def names_an_object(route: str) -> bool:
    """Whether the address of the route holds the id of something that belongs to a team."""
    return route.startswith("api/") and "<" in route
