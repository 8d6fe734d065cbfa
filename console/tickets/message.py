"""What is told of an incident, and how telling it may end. Plain values, so that every destination is a pure function of them."""

from __future__ import annotations

import base64
import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, Final, Literal, Protocol

Verb = Literal["open", "update", "acknowledge", "unacknowledge", "resolve", "reopen", "comment", "pictures", "test"]
ERROR_CHARS_MAX: Final = 500
JSON_TYPE: Final = "application/json"
LINE_KINDS: Final[dict[str, tuple[str, ...]]] = {"webhook": (), "pagerduty": ("title",)}
"""Kinds that show less of an incident than a title and a body of text."""


class Again(Exception):
    """It did not work now and may later. retry_after_s: what the other side asked for; status: what it answered."""

    def __init__(self, why: str, retry_after_s: float | None = None, status: int | None = None) -> None:
        super().__init__(why[:ERROR_CHARS_MAX])
        self.retry_after_s = retry_after_s
        self.status = status


class Refused(Exception):
    """Trying again would change nothing. is_gone: the other side wants no more messages at all."""

    def __init__(self, why: str, status: int | None = None, is_gone: bool = False) -> None:
        super().__init__(why[:ERROR_CHARS_MAX])
        self.status = status
        self.is_gone = is_gone


@dataclass(frozen=True, slots=True)
class Message:
    """One thing that happened to an incident, with the incident as it is now.

    delivery: the same however often it is tried. ticket: names the incident's copy at this destination. dedup_key: the
    incident's key (job, attempt, symptom, communicator; never the culprit) and the ticket. Times are ISO 8601 in UTC.
    pictures: (name of the file, PNG), in a message of that verb alone. uploaded: which of them are there already, and what they
    are called there; a try adds to it as it goes, so that the next one goes on from there however this one ends.
    own_title, own_lines: as the team's templates have them; empty for the usual words. places: of each culprit shown, where it
    runs; n_culprits: how many there are, of whom `culprits` are the first; evidence: the first facts against them; advice: what
    to do next; empty where nothing is known.
    """

    verb: Verb
    delivery: str
    ticket: str
    dedup_key: str
    number: int
    headline: str
    state: str
    condition: str
    severity: str
    symptom: str
    component: str
    grade: str
    job: str
    attempt: int
    culprits: tuple[int, ...]
    nodes: tuple[str, ...]
    n_victims: int
    opened_at: str
    at: str
    n_culprits: int = 0
    suspects: tuple[int, ...] = ()
    n_suspects: int = 0
    places: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    advice: str = ""
    resolved_at: str = ""
    resolution: str = ""
    actor: str = ""
    note: str = ""
    url: str = ""
    external_id: str = ""
    pictures: tuple[tuple[str, bytes], ...] = ()
    uploaded: dict[str, str] = field(default_factory=dict)
    own_title: str = ""
    own_lines: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        return self.own_title or f"[{self.job}] {self.headline}"

    @property
    def is_over(self) -> bool:
        return self.state == "resolved"

    @property
    def is_test(self) -> bool:
        return self.verb == "test"


@dataclass(frozen=True, slots=True)
class Config:
    """A destination's settings and secrets. key: names the destination."""

    key: str
    settings: Mapping[str, str]
    secrets: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Sent:
    """How it went well. external_id, url: what the ticket is called there; empty when that stays as it was.

    remark_id: the comment that was written, so that it is not taken for somebody else's.
    """

    status: int | None = None
    external_id: str = ""
    url: str = ""
    said: str = ""
    remark_id: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server answered; names of headers are in small letters."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The body as JSON. Raises Again when it is none: something stands between us and the server."""
        try:
            return json.loads(self.body)
        except ValueError as error:
            raise Again("the answer is no JSON", status=self.status) from error


def id_of(answer: Answer) -> str:
    """What was created is called; empty when the answer does not say."""
    try:
        return str(answer.json().get("id") or "")[:100]
    except (Again, AttributeError):
        return ""


class Post(Protocol):
    """The door to the network: one request, one answer. Raises Again and Refused."""

    def __call__(self, method: str, url: str, body: bytes, headers: Mapping[str, str]) -> Answer: ...


@dataclass(frozen=True, slots=True)
class Setting:
    """One field of a destination's form. is_secret: stored encrypted and never returned."""

    name: str
    words: str
    is_secret: bool = False
    is_needed: bool = True
    usual: str = ""
    is_address: bool = False
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Kind:
    """A sort of destination. check: refuses bad settings by raising Refused. takes_pictures: holds files or shows images.

    writes_once: the incident's text is written when its ticket is made there, and never again. bare: acts that say nothing of
    the incident's evidence. untold: acts it has no place for, and why.
    """

    name: str
    title: str
    settings: tuple[Setting, ...]
    send: Callable[[Message, Config, Post], Sent]
    check: Callable[[Config], None] = field(default=lambda config: None)
    calls_back: bool = False
    takes_pictures: bool = False
    writes_once: bool = False
    bare: frozenset[Verb] = frozenset()
    untold: Mapping[str, str] = field(default_factory=dict)

    def shows_evidence(self, verb: Verb, external_id: str) -> bool:
        """Whether such a message shows places, evidence and advice, so that they are to be read. external_id: of its ticket."""
        return verb not in self.bare and not (self.writes_once and external_id)


def as_json(body: Any) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def checked(answer: Answer) -> Answer:
    """The answer when it is 2xx. Raises Again for what passes, Refused for what does not."""
    if 200 <= answer.status < 300:
        return answer
    said = answer.body[:300].decode(errors="replace").strip()
    why = f"answered {answer.status}" + (f": {said}" if said else "")
    is_limit = answer.status == 403 and (
        "retry-after" in answer.headers or answer.headers.get("x-ratelimit-remaining") == "0"
    )
    if answer.status in (408, 425, 429) or answer.status >= 500 or is_limit:
        raise Again(why, retry_after_s(answer), answer.status)
    if 300 <= answer.status < 400:
        why = f"answered {answer.status}: redirects are not followed; enter the address it should be"
    raise Refused(why, answer.status)


class Desk:
    """Requests to one place's JSON interface: an address before every path, the same headers each time."""

    def __init__(self, base: str, headers: Mapping[str, str], post: Post) -> None:
        self.base = base
        self._headers = {"Content-Type": JSON_TYPE, **headers}
        self._post = post

    def ask(self, method: str, path: str, body: Any = None) -> Answer:
        """The answer when it is 2xx; see checked for what is raised."""
        sent = b"" if body is None else as_json(body)
        return checked(self._post(method, self.base + path, sent, self._headers))

    def upload(self, path: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """A POST of something else than JSON."""
        return checked(self._post("POST", self.base + path, body, {**self._headers, **headers}))


PICTURES_SETTING: Final = Setting(
    "pictures", "Pictures of ranks, waits and flows", is_needed=False, usual="yes", choices=("yes", "no")
)


def check_pictures(config: Config) -> None:
    if config.settings.get("pictures", "").lower() not in ("", "yes", "no"):
        raise Refused("pictures: yes or no")


def wants_pictures(kind: Kind, settings: Mapping[str, str]) -> bool:
    return kind.takes_pictures and settings.get("pictures", "").lower() != "no"


def multipart(name: str, files: Sequence[tuple[str, bytes]]) -> tuple[bytes, str]:
    """Files as a form of one field: the body and its content type."""
    edge = secrets.token_hex(16)
    parts = [
        f'--{edge}\r\nContent-Disposition: form-data; name="{name}"; filename="{file}"\r\n'
        f"Content-Type: image/png\r\n\r\n".encode()
        + body
        + b"\r\n"
        for file, body in files
    ]
    return b"".join([*parts, f"--{edge}--\r\n".encode()]), f"multipart/form-data; boundary={edge}"


def upload_pictures(message: Message, upload: Callable[[str, bytes], str]) -> list[str]:
    """Upload those that are not there yet by `upload` (name of the file, PNG → what it is called there); what all are called."""
    for name, body in message.pictures:
        if name not in message.uploaded:
            message.uploaded[name] = upload(name, body)
    return [message.uploaded[name] for name, _ in message.pictures]


def basic(user: str, password: str) -> str:
    """The header's value of HTTP Basic authentication."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def retry_after_s(answer: Answer) -> float | None:
    """Seconds the server asked to wait: as a number, or until a date."""
    given = answer.headers.get("retry-after", "").strip()
    if given.isascii() and given.isdigit() and len(given) <= 7:
        return float(given)
    try:
        return max(parsedate_to_datetime(given).timestamp() - time.time(), 0.0)
    except (ValueError, OverflowError):
        return None
