"""From packets' heads to RoCEv2: who sends to which queue pair, and how many bytes of payload.

Lengths come from the IP header, so that captures that keep a packet's beginning only count all the same.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from nccl_instrument.captures.files import Batch, Bytes, Ints

ROCE_PORT: Final = 4791
UDP: Final = 17
IPV4, IPV6 = 0x0800, 0x86DD
VLAN_TAGS: Final = (0x8100, 0x88A8, 0x9100)
VLAN_TAGS_MAX: Final = 3

TYPE_AT: Final = {1: 12, 113: 14, 276: 0}
"""Link type (Ethernet, Linux cooked v1 and v2) → where the payload's type is."""
PAYLOAD_AT: Final = {1: 14, 113: 16, 276: 20}
RAW_LINKS: Final = (12, 14, 101, 228, 229)

BTH_BYTES, ICRC_BYTES = 12, 4
RC, UC, UD, XRC = 0, 1, 3, 5
CNP: Final = 0x81
READ_REQUEST: Final = 12


def _extension_bytes() -> Ints:
    """Opcode → bytes of headers after the base header; -1 for opcodes that RoCE has not got."""
    immediate, reth, aeth, atomic, atomic_ack, invalidate = 4, 16, 4, 28, 8, 4
    sends = {0: 0, 1: 0, 2: 0, 3: immediate, 4: 0, 5: immediate, 22: invalidate, 23: invalidate}
    writes = {6: reth, 7: 0, 8: 0, 9: immediate, 10: reth, 11: reth + immediate}
    others = {READ_REQUEST: reth, 19: atomic, 20: atomic}
    responses = {13: aeth, 14: 0, 15: aeth, 16: aeth, 17: aeth, 18: aeth + atomic_ack}
    found = np.full(256, -1, np.int64)
    for transport, operations, more in (
        (RC, sends | writes | others | responses, 0),
        (UC, {op: size for op, size in (sends | writes).items() if op < 22}, 0),
        (UD, {4: 0, 5: immediate}, 8),
        (XRC, sends | writes | others, 4),
        (XRC, responses, 0),
    ):
        for operation, size in operations.items():
            found[transport << 5 | operation] = size + more
    found[CNP] = 16
    return found


EXTENSION_BYTES: Final = _extension_bytes()
IS_NUMBERED: Final = np.array(
    [EXTENSION_BYTES[op] >= 0 and op >> 5 in (RC, UC, XRC) and not 13 <= op & 31 <= 18 for op in range(256)]
)
"""Requests of a connection: their packet sequence numbers rise by one, whoever else answers on the same queue pair."""


@dataclass(frozen=True, slots=True)
class Packets:
    """n RoCEv2 packets. ends: (n, 4) source and destination address, two words each, IPv4 as ::ffff:a.b.c.d."""

    ns: Ints
    ends: npt.NDArray[np.uint64]
    qpn: Ints
    opcode: Ints
    psn: Ints
    n_bytes: Ints
    is_marked: npt.NDArray[np.bool_]


def packets_of(batch: Batch, counts: Counter[str]) -> Packets:
    """The RoCEv2 packets; the others by reason in counts."""
    counts["packets"] += len(batch.ns)
    kind, ip = _network(batch, counts)
    rows = np.flatnonzero(kind > 0)
    head, ip, is_v6 = batch.heads[rows], ip[rows], kind[rows] == IPV6
    captured, original = batch.captured[rows], batch.original[rows]
    # Cut before the IP header's last byte: zeros are there, which are no UDP.
    ip_bytes = np.where(is_v6, 40, (_at(head, ip) & 15) * 4)
    is_udp = (np.where(is_v6, _at(head, ip + 6), _at(head, ip + 9)) == UDP) & (ip_bytes >= 20)
    is_cut = captured < ip + np.where(is_v6, 40, 20)
    is_fragment = ~is_v6 & ((_word(head, ip + 6) & 0x1FFF) != 0)
    udp = ip + ip_bytes
    is_cut |= is_udp & (captured < udp + 8)
    is_roce = is_udp & ~is_fragment & (_word(head, udp + 2) == ROCE_PORT) & ~is_cut
    is_short = is_roce & (captured < udp + 8 + BTH_BYTES)
    counts["packets_cut_short"] += int(np.count_nonzero(is_cut | is_short))
    counts["packets_other"] += int(np.count_nonzero(~(is_roce | is_cut)))
    kept = np.flatnonzero(is_roce & ~is_short)
    total = np.where(is_v6, 40 + _word(head, ip + 4), _word(head, ip + 2))
    total[ip + total > original] = -1  # longer than the packet was
    return _transport(
        batch.ns[rows[kept]], head[kept], ip[kept], udp[kept] + 8, is_v6[kept], total[kept], counts
    )  # fmt: skip


def _transport(
    ns: Ints, head: Bytes, ip: Ints, bth: Ints, is_v6: npt.NDArray[np.bool_], total: Ints, counts: Counter[str]
) -> Packets:
    opcode = _at(head, bth)
    extension = EXTENSION_BYTES[opcode]
    pad = (_at(head, bth + 1) >> 4) & 3
    n_bytes = total - (bth - ip) - BTH_BYTES - extension - pad - ICRC_BYTES
    is_known, fits = extension >= 0, n_bytes >= 0
    counts["packets_of_unknown_opcode"] += int(np.count_nonzero(~is_known))
    counts["packets_of_wrong_length"] += int(np.count_nonzero(is_known & ~fits))
    kept = np.flatnonzero(is_known & fits)
    counts["packets_roce"] += len(kept)
    head, ip, bth, is_v6 = head[kept], ip[kept], bth[kept], is_v6[kept]
    traffic_class = np.where(is_v6, (_word(head, ip) >> 4) & 0xFF, _at(head, ip + 1))
    return Packets(
        ns[kept], _ends(head, ip, is_v6), _word(head, bth + 5) << 8 | _at(head, bth + 7), opcode[kept],
        _word(head, bth + 9) << 8 | _at(head, bth + 11), n_bytes[kept], traffic_class & 3 == 3,
    )  # fmt: skip


def _network(batch: Batch, counts: Counter[str]) -> tuple[Ints, Ints]:
    """(n,) IPV4, IPV6 or 0 for packets that are neither, and where its header begins."""
    kind, ip = np.zeros(len(batch.ns), np.int64), np.zeros(len(batch.ns), np.int64)
    is_known = np.zeros(len(batch.ns), np.bool_)
    for link in TYPE_AT:
        mine = np.flatnonzero(batch.link == link)
        kind[mine], ip[mine] = _behind_tags(batch.heads[mine], TYPE_AT[link], PAYLOAD_AT[link])
        is_known[mine] = True
    raw = np.flatnonzero(np.isin(batch.link, RAW_LINKS))
    version = batch.heads[raw, 0] >> 4
    kind[raw] = np.select([version == 4, version == 6], [IPV4, IPV6], 0)
    is_known[raw] = True
    counts["packets_of_unknown_links"] += int(np.count_nonzero(~is_known))
    is_ip = np.isin(kind, (IPV4, IPV6))
    is_short = is_known & ~is_ip & (batch.captured < np.minimum(batch.original, 14))
    counts["packets_cut_short"] += int(np.count_nonzero(is_short))
    counts["packets_other"] += int(np.count_nonzero(is_known & ~is_ip & ~is_short))
    return np.where(is_ip, kind, 0), ip


def _behind_tags(heads: Bytes, type_at: int, payload_at: int) -> tuple[Ints, Ints]:
    """Type and place of the payload behind VLAN tags: each is the tag's number, then the type of what follows."""
    ip = np.full(len(heads), payload_at, np.int64)
    kind = _word(heads, np.full(len(heads), type_at, np.int64))
    for _ in range(VLAN_TAGS_MAX):
        is_tagged = np.isin(kind, VLAN_TAGS)
        kind = np.where(is_tagged, _word(heads, ip + 2), kind)
        ip = np.where(is_tagged, ip + 4, ip)
    return kind, ip


def _ends(head: Bytes, ip: Ints, is_v6: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint64]:
    """Both addresses as four big-endian words."""
    found = np.zeros((len(head), 32), np.uint8)
    rows = np.arange(len(head))[:, None]
    long, short = np.flatnonzero(is_v6), np.flatnonzero(~is_v6)
    found[long] = head[rows[long], ip[long, None] + 8 + np.arange(32)]
    for side in (0, 1):
        found[np.ix_(short, 16 * side + np.array([10, 11]))] = 0xFF
        found[short, 16 * side + 12 : 16 * side + 16] = head[
            rows[short], ip[short, None] + 12 + 4 * side + np.arange(4)
        ]
    return found.view(">u8").astype(np.uint64)


def _at(head: Bytes, place: Ints) -> Ints:
    """A byte of each packet; zero beyond the heads."""
    found: Ints = head[np.arange(len(head)), np.minimum(place, head.shape[1] - 1)].astype(np.int64)
    return found


def _word(head: Bytes, place: Ints) -> Ints:
    return _at(head, place) << 8 | _at(head, place + 1)
