"""Dumps as bytes: literal bytes both ways, every refusal with its reason, limits that say what they left out, any content."""

from __future__ import annotations

import contextlib
import json
import random
import struct
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nccl_instrument import dumps
from nccl_instrument.dumps import RECORDER, STACKS, BadDump, Dumps, Part, decode_dumps, encode_dumps

GOLDEN = Path(__file__).parents[1] / "golden" / "dumps-1.bin"
PART = Part(STACKS, 3, 41, 0, "python train.py", 1_700_000_000_000_000_000, "", "py-spy").holding(b'[{"thread_id": 1}]')
SILENT = Part(RECORDER, 3, 41, 0, "python train.py", 1_700_000_000_000_000_001, "the process is gone", "")
ANSWER = Dumps("job", "node-a", "00" * 16, 12, 1, (PART, SILENT))


def sealed(head: object, rest: bytes = b"", *, head_bytes: int = -1, packed_bytes: int = -1) -> bytes:
    """A body around any head, with a checksum that fits."""
    plain = head if isinstance(head, bytes) else json.dumps(head).encode()
    packed = zlib.compress(plain)
    sizes = (
        len(plain) if head_bytes < 0 else head_bytes,
        len(packed) if packed_bytes < 0 else packed_bytes,
        zlib.crc32(packed + rest),
    )
    return b"DGDP\x01\0\0\0" + struct.pack("<III", *sizes) + packed + rest


def head_of(*parts: Any, **changed: Any) -> dict[str, Any]:
    plain = {"job": "job", "node": "node-a", "boot": "00" * 16, "request": 12, "look": 1, "parts": list(parts)}
    return plain | changed


def said(**changed: Any) -> dict[str, Any]:
    plain = {"kind": STACKS, "rank": 3, "pid": 41, "parent": 0, "command": "python train.py", "taken_ns": 5}
    return plain | {"silent": "", "by": "py-spy", "length": 0, "packed": 0} | changed


def test_an_answer_is_these_bytes() -> None:
    assert decode_dumps(sealed(head_of(said(length=4, packed=len(PACKED))), PACKED)) == Dumps(
        "job", "node-a", "00" * 16, 12, 1,
        (Part(STACKS, 3, 41, 0, "python train.py", 5, "", "py-spy", 4, PACKED),),
    )  # fmt: skip
    raw = encode_dumps(ANSWER)
    assert raw[:8] == b"DGDP\x01\0\0\0"
    assert raw.endswith(PART.packed)


PACKED = zlib.compress(b"abcd")


def test_the_golden_answer_is_read_as_when_this_version_was_made() -> None:
    """When this fails, agents of before cannot answer: raise VERSION, or mend what was changed."""
    assert decode_dumps(GOLDEN.read_bytes()) == ANSWER


def test_what_was_taken_comes_back_and_what_was_not_says_why() -> None:
    found = decode_dumps(encode_dumps(ANSWER))
    assert found == ANSWER
    assert [(one.raw, one.silent) for one in found.parts] == [(b'[{"thread_id": 1}]', ""), (b"", "the process is gone")]


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "truncated"),
        (b"DGTB" + bytes(20), "magic"),
        (b"DGDP\x02" + bytes(20), "version 2"),
        (encode_dumps(ANSWER)[:-1], "checksum"),
        (bytes(dumps.BODY_BYTES_MAX + 1), "too large"),
        (sealed(head_of(), head_bytes=dumps.HEAD_BYTES_MAX + 1), "head is too large"),
        (sealed(head_of(), packed_bytes=10_000), "head is too large"),
        (sealed(head_of(), head_bytes=5), "inflated size"),
        (sealed(b"{"), "not JSON"),
        (sealed(b"[" * 100_000), "not JSON"),
        (sealed(b"[]"), "no object"),
        (sealed(head_of(job="")), "job name"),
        (sealed(head_of(node="a\nb")), "node name"),
        (sealed(head_of(node="\ud800")), "node name"),
        (sealed(head_of(boot="zz" * 16)), "boot"),
        (sealed(head_of(request=True)), "no request"),
        (sealed(head_of(request=2**70)), "no request"),
        (sealed(head_of(look=3)), "no look"),
        (sealed(head_of(parts={})), "list of parts"),
        (sealed(head_of(*[said()] * (dumps.PARTS_MAX + 1))), "more than 4096"),
        (sealed(head_of("part")), "a part lacks"),
        (sealed(head_of(said(rank="3"))), "another type"),
        (sealed(head_of(said(kind="core"))), "no known kind"),
        (sealed(head_of(said(rank=-2))), "a number that cannot be"),
        (sealed(head_of(said(taken_ns=2**63))), "a number that cannot be"),
        (sealed(head_of(said(length=4 * 2**20 + 1, packed=5)), b"12345"), "a part is too large"),
        (sealed(head_of(said(length=4))), "promises bytes it has not"),
        (sealed(head_of(said(packed=4)), b"1234"), "promises bytes it has not"),
        (sealed(head_of(said(length=4, packed=50)), PACKED), "than what came"),
        (sealed(head_of(said(length=4, packed=len(PACKED))), PACKED + b"x"), "padded"),
        (sealed(head_of(said(length=3, packed=len(PACKED))), PACKED), "inflated size"),
        (sealed(head_of(said(length=4, packed=4)), b"\xff\xff\xff\xff"), "does not inflate"),
        (sealed(head_of(*[said(kind=RECORDER, length=32 * 2**20, packed=1)] * 3), b"abc"), "larger than they may be"),
    ],
)  # fmt: skip
def test_a_body_that_is_wrong_is_refused_with_the_reason(raw: bytes, why: str) -> None:
    with pytest.raises(BadDump, match=why):
        decode_dumps(raw)


def test_a_bomb_is_not_inflated_beyond_its_promise() -> None:
    bomb = zlib.compress(bytes(2**26))
    with pytest.raises(BadDump, match="inflated size"):
        decode_dumps(sealed(head_of(said(length=10, packed=len(bomb))), bomb))


def test_texts_are_made_printable_and_short() -> None:
    raw = encode_dumps(replace(ANSWER, parts=(replace(SILENT, command="a\n\0b\ud800" + "c" * 1000),)))
    (part,) = decode_dumps(raw).parts
    assert part.command == "a  b " + "c" * (dumps.TEXT_CHARS_MAX - 5)


def test_a_dump_larger_than_a_part_may_be_stays_as_a_reason() -> None:
    part = Part(STACKS, 1, 2, 0, "", 0, "", "").holding(bytes(4 * 2**20 + 1))
    assert (part.raw, part.silent) == (b"", "left out: 4194305 bytes, at most 4194304 are sent")


def test_the_largest_dumps_make_room_and_say_so() -> None:
    small = Part(STACKS, 0, 1, 0, "", 0, "", "").holding(b"small")
    large = [Part(RECORDER, rank, 1, 0, "", 0, "", "").holding(bytes(30 * 2**20)) for rank in range(3)]
    found = decode_dumps(encode_dumps(replace(ANSWER, parts=(*large, small)))).parts
    assert [one.length for one in found] == [30 * 2**20, 30 * 2**20, 0, 5]
    assert found[2].silent == "left out: the node's dumps take more than 64 MiB"


def test_incompressible_dumps_stay_within_a_body() -> None:
    noise = random.Random(1).randbytes(6 * 2**20)
    parts = tuple(Part(RECORDER, rank, 1, 0, "", 0, "", "").holding(noise) for rank in range(4))
    raw = encode_dumps(replace(ANSWER, parts=parts))
    assert len(raw) <= dumps.BODY_BYTES_MAX
    assert [bool(one.length) for one in decode_dumps(raw).parts] == [True, True, False, False]


texts = st.text(st.characters(categories=("L", "N", "P")), max_size=20)
names = st.text(st.characters(categories=("L", "N")), min_size=1, max_size=20)
numbers = st.integers(0, 2**31 - 1)
parts = st.builds(
    lambda raw, **fields: Part(**fields).holding(raw),
    raw=st.binary(max_size=200), kind=st.sampled_from(dumps.KINDS), rank=st.integers(-1, 10**6), pid=numbers,
    parent=numbers, command=texts, taken_ns=st.integers(0, 2**62), silent=texts, by=texts,
)  # fmt: skip
answers = st.builds(
    Dumps, job=names, node=names, boot=st.binary(min_size=16, max_size=16).map(bytes.hex),
    request=st.integers(1, 2**62), look=st.integers(1, 2), parts=st.lists(parts, max_size=5).map(tuple),
)  # fmt: skip


@given(answers)
@settings(max_examples=50, deadline=None)
def test_any_answer_comes_back(answer: Dumps) -> None:
    assert decode_dumps(encode_dumps(answer)) == answer


@given(st.binary(max_size=300))
@settings(max_examples=100, deadline=None)
def test_any_bytes_give_an_answer_or_a_reason(raw: bytes) -> None:
    for body in (raw, b"DGDP\x01\0\0\0" + raw, sealed(raw, raw)):
        with contextlib.suppress(BadDump):
            decode_dumps(body)


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_a_changed_body_gives_an_answer_or_a_reason(data: st.DataObject) -> None:
    raw = bytearray(encode_dumps(ANSWER))
    for at in data.draw(st.lists(st.integers(0, len(raw) - 1), min_size=1, max_size=4)):
        raw[at] = data.draw(st.integers(0, 255))
    raw[16:20] = struct.pack("<I", zlib.crc32(raw[20:]))
    with contextlib.suppress(BadDump):
        decode_dumps(bytes(raw))
