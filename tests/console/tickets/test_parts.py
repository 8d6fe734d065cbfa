"""Payloads as the other sides document them, the guard of addresses, and secrets at rest."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import hmac
import ipaddress
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.core import mail

from console.tickets.destinations import KINDS, parted
from console.tickets.guard import is_public, place_of
from console.tickets.http import poster
from console.tickets.kinds import alertmanager, email, gitlab, jira, pagerduty, slack, webhook
from console.tickets.known import ADVICE_CHARS_MAX, EVIDENCE_CHARS_MAX, EVIDENCE_MAX, PLACES_MAX
from console.tickets.message import Again, Answer, Config, Message, Refused, checked
from console.tickets.sealing import Unreadable, is_newest, seal, unseal
from tests.console.tickets.places import Asked, place

MESSAGE = Message(
    verb="open", delivery="d1", ticket="t1", dedup_key="v1:7:0:failure:aa:k", number=12, headline="Rank 3 hangs",
    state="open", condition="firing", severity="high", symptom="failure", component="process", grade="strong",
    job="llama", attempt=0, culprits=(3,), nodes=("n1",), n_victims=7, opened_at="2026-11-22T10:00:00.000Z",
    at="2026-11-22T10:00:10.000Z", url="https://console/incidents/12",
)  # fmt: skip
OVER = dataclasses.replace(MESSAGE, verb="resolve", state="resolved", resolved_at="2026-11-22T11:00:00.000Z")


def test_pagerduty_resolves_with_the_key_alone() -> None:
    body = pagerduty.body_of(OVER, "k")
    assert body == {"routing_key": "k", "event_action": "resolve", "dedup_key": MESSAGE.dedup_key}
    opened = pagerduty.body_of(MESSAGE, "k")
    assert opened["payload"]["severity"] == "critical"
    assert {"summary", "source", "severity", "timestamp", "component", "group", "class"} < opened["payload"].keys()
    long = pagerduty.body_of(dataclasses.replace(MESSAGE, headline="x" * 3000), "k")
    assert len(long["payload"]["summary"]) == 1024


def test_alertmanager_fires_and_ends_as_the_same_alert() -> None:
    fired, ended = alertmanager.body_of(MESSAGE, "r"), alertmanager.body_of(OVER, "r")
    assert (fired["version"], fired["status"], ended["status"]) == ("4", "firing", "resolved")
    assert fired["alerts"][0]["fingerprint"] == ended["alerts"][0]["fingerprint"]
    assert (fired["groupKey"], ended["alerts"][0]["endsAt"]) == (MESSAGE.dedup_key, OVER.resolved_at)
    assert alertmanager.body_of(dataclasses.replace(MESSAGE, culprits=(5,)), "r")["groupKey"] == fired["groupKey"]


def test_a_webhook_is_signed_with_every_secret_and_stays_below_its_size() -> None:
    keys = [b"k" * 24, b"z" * 64]
    secrets = " ".join("whsec_" + base64.b64encode(key).decode() for key in keys)
    made = webhook.signature_of(secrets, "d1", 1_700_000_000, b"{}")
    expected = [hmac.new(key, b"d1.1700000000.{}", hashlib.sha256).digest() for key in keys]
    assert made == " ".join("v1," + base64.b64encode(one).decode() for one in expected)
    huge = dataclasses.replace(
        MESSAGE, note="n" * 10_000, culprits=tuple(range(16)), places=("p" * 200,) * PLACES_MAX,
        evidence=("e" * EVIDENCE_CHARS_MAX,) * EVIDENCE_MAX, advice="a" * ADVICE_CHARS_MAX,
    )  # fmt: skip
    assert len(str(webhook.body_of(huge))) < 20_000
    for bad in ("whsec_AAAA", "plain", "whsec_%"):
        with pytest.raises(Refused):
            webhook.signature_of(bad, "d1", 0, b"")


def test_names_of_jobs_ping_nobody_and_run_no_commands() -> None:
    shouting = dataclasses.replace(MESSAGE, job="<!channel> @all", headline="/close\n/assign @me")
    assert "<!channel>" not in str(slack.body_of(shouting))
    assert "\n/" not in gitlab.without_commands("a\n/close")
    assert gitlab.issue_of(shouting, Config("", {}, {}))["confidential"] is True
    assert "\n" not in jira.issue_of(shouting, Config("", {"project": "OPS"}, {}))["fields"]["summary"]
    assert "\n" not in email.mail_of(shouting, ["a@b.c"]).subject


def test_mails_about_an_incident_are_one_conversation() -> None:
    config = Config("", {"to": "a@b.c, d@e.f"}, {})
    email.send(MESSAGE, config, poster(()))
    email.send(OVER, config, poster(()))
    first, second = mail.outbox
    assert (first.to, second.extra_headers["In-Reply-To"]) == (["a@b.c", "d@e.f"], first.extra_headers["Message-ID"])


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.1.2.3", "169.254.169.254", "192.168.0.1", "100.64.0.1", "0.0.0.0", "224.0.0.1", "::1", "fe80::1",
     "fd00::1", "::ffff:127.0.0.1", "2002:7f00:1::", "64:ff9b::a00:1", "255.255.255.255",
     "fec0::1", "192.88.99.1", "3fff::1", "2002:c058:6301::", "5f00::1", "2001:db8::1", "::127.0.0.1", "64:ff9b:1::1"],
)  # fmt: skip
def test_no_address_inside_is_public(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "192.88.98.1", "2606:4700::1111", "2a00:1450::1", "64:ff9b::101:101", "3ffe::1"]
)
def test_addresses_that_anybody_may_have_are_public(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("url", ["http://1.1.1.1/", "ftp://x/", "https://u:p@x/", "https://", "https://x:99999/", "https://a b/",
                                 "https://127.0.0.1/", "https://[::1]/", "https://2130706433/", "https://0x7f.1/"])  # fmt: skip
def test_addresses_that_are_refused(url: str) -> None:
    with pytest.raises((Refused, Again)):
        place_of(url, ())


def test_a_named_place_is_reached_and_redirects_are_not_followed() -> None:
    with place(lambda asked: (302, {"Location": "http://169.254.169.254/"}, {})) as here:
        answer = poster({here.name})("POST", here.url, b"{}", {})
        with pytest.raises(Refused, match="redirects are not followed"):
            checked(answer)
        assert len(here.asked) == 1


def test_an_endless_answer_is_cut() -> None:
    with place(lambda asked: (200, {}, b"x" * 1_000_000)) as here:
        assert len(poster({here.name})("POST", here.url, b"", {}).body) == 256 * 1024


@pytest.mark.parametrize(
    ("status", "headers", "error"),
    [(429, {}, Again), (500, {}, Again), (403, {"retry-after": "60"}, Again), (403, {}, Refused), (404, {}, Refused)],
)
def test_which_answers_may_change(status: int, headers: dict[str, str], error: Any) -> None:
    with pytest.raises(error):
        checked(Answer(status, headers, b"why"))


def test_sealed_secrets_are_read_by_their_owner_alone(settings: Any) -> None:
    sealed = seal({"token": "geheim"}, "a")
    assert "geheim" not in sealed and seal({"token": "geheim"}, "a") != sealed
    assert unseal(sealed, "a") == {"token": "geheim"}
    raw = bytearray(base64.b64decode(sealed[3:]))
    raw[20] ^= 1
    damaged = "v2." + base64.b64encode(raw).decode()
    for wrong, owner in (
        (sealed, "b"),
        (damaged, "a"),
        ("v2.AAAA", "a"),
        ("v1." + sealed[3:], "a"),
        ("v3." + sealed[3:], "a"),
        ("?", "a"),
    ):
        with pytest.raises(Unreadable):
            unseal(wrong, owner)
    settings.SECRET_KEY = "another"
    with pytest.raises(Unreadable):
        unseal(sealed, "a")


def test_secrets_are_sealed_by_aes_256_gcm_with_the_owner_as_associated_data(settings: Any) -> None:
    settings.TICKETS_KEY = "the newest key"
    key = HKDF(SHA256(), 32, salt=None, info=b"diogenes tickets v2").derive(b"the newest key")
    raw = base64.b64decode(seal({"token": "geheim"}, "a").removeprefix("v2."))
    assert len(raw) == 12 + len('{"token": "geheim"}') + 16
    assert AESGCM(key).decrypt(raw[:12], raw[12:], b"a") == b'{"token": "geheim"}'


SEALED_V1 = (
    "v1.ka/XLMuolEBjKJKBCozy7TiTOvYOg3NfU09cXO2fYonJYbal6iQk8QzPCvOWWPJ70YmOBRdF6C9vTaCJ7NukoOkRyxKdNZ3zIKMjLoT4WhOI9WUUUwGfl9RWuhWqLeZn"
    "KIu0fFxIM7ZUfMabdcUHgRHB4kh7fS/T/9BvekHn"
)


def test_the_older_form_is_still_read_by_its_owner_and_its_key(settings: Any) -> None:
    settings.TICKETS_KEY = "an older key"
    assert unseal(SEALED_V1, "5f0c") == {"token": "geheim", "hook_secret": "x" * 40}
    assert not is_newest(SEALED_V1, "5f0c")
    raw = bytearray(base64.b64decode(SEALED_V1[3:]))
    raw[20] ^= 1
    for wrong, owner in ((SEALED_V1, "5f0d"), ("v1." + base64.b64encode(raw).decode(), "5f0c"), ("v1.AAAA", "5f0c")):
        with pytest.raises(Unreadable):
            unseal(wrong, owner)


def test_the_newest_key_seals_and_older_ones_and_the_secret_key_still_open(settings: Any) -> None:
    settings.TICKETS_KEY, settings.SECRET_KEY = "", "secret"
    by_secret_key = seal({"token": "1"}, "a")
    settings.TICKETS_KEY = "first"
    by_first = seal({"token": "2"}, "a")
    settings.TICKETS_KEY, settings.TICKETS_KEYS_OLD = "second", ["first"]
    by_second = seal({"token": "3"}, "a")
    assert [unseal(one, "a")["token"] for one in (by_secret_key, by_first, by_second)] == ["1", "2", "3"]
    assert [is_newest(one, "a") for one in (by_secret_key, by_first, by_second, "")] == [False, False, True, True]
    settings.TICKETS_KEYS_OLD, settings.SECRET_KEY = [], "changed"
    for one in (by_secret_key, by_first):
        with pytest.raises(Unreadable):
            unseal(one, "a")


def test_a_secret_is_not_led_to_another_address() -> None:
    kept = Config("k", {"url": "https://a.example", "email": "a@b.c", "project": "OPS"}, {"token": "t"})
    assert parted(KINDS["jira"], {"project": "OPS2", "token": ""}, kept).secrets == {"token": "t"}
    with pytest.raises(Refused, match="enter “API token” again"):
        parted(KINDS["jira"], {"url": "https://evil.example"}, kept)
    for given in ({"nonsense": "1"}, {"project": ""}, {"project": "a b"}, {"url": "file:///etc/passwd", "token": "t"}):
        with pytest.raises(Refused):
            parted(KINDS["jira"], given, kept)


def test_pagerduty_is_told_and_closed_by_a_test() -> None:
    with place() as here:
        config = Config("k", {"url": here.url}, {"routing_key": "a" * 32})
        pagerduty.send(dataclasses.replace(MESSAGE, verb="test"), config, poster({here.name}))
        told: list[Asked] = here.asked
        assert [one.json["event_action"] for one in told] == ["trigger", "resolve"]
