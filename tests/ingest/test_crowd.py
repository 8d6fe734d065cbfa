"""Who may be connected: room for newcomers is made by who has waited longest, never by who is being answered."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from ingest.door import crowd
from ingest.door.crowd import Crowd, neighbourhood


@dataclass(eq=False)
class Guest:
    address: str
    deadline: float = 100.0
    said: list[str] = field(default_factory=list)

    def overdue(self) -> None:
        self.said.append("overdue")

    def make_room(self) -> None:
        self.said.append("made room")


@pytest.fixture
def four(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for four, two of an address."""
    monkeypatch.setattr(crowd, "connections_max", lambda: 4)


def entered(party: Crowd, *addresses: str) -> list[Guest]:
    guests = [Guest(address) for address in addresses]
    assert all(party.enter(guest) for guest in guests)
    return guests


async def test_who_waited_longest_makes_room(four: None) -> None:
    party = Crowd()
    first, second, *_ = entered(party, "a", "b", "c", "d")
    party.waits(first)  # it has had a request meanwhile
    entered(party, "e")
    assert (first.said, second.said) == ([], ["made room"])
    assert party.counts() == {"connections": 4, "connections_refused": {"crowded": 1}}


async def test_an_address_makes_room_for_itself_first(four: None) -> None:
    party = Crowd()
    other, mine, also_mine = entered(party, "a", "b", "b")
    entered(party, "b")
    assert (other.said, mine.said, also_mine.said) == ([], ["made room"], [])
    assert party.refused == {"address_crowded": 1}


async def test_who_is_being_answered_stays_and_a_newcomer_without_room_is_turned_away(four: None) -> None:
    party = Crowd()
    for guest in entered(party, "a", "b", "c", "d"):
        party.is_served(guest)
    assert not party.enter(Guest("e"))
    assert party.counts()["connections"] == 4


async def test_who_left_leaves_nothing_behind(four: None) -> None:
    party = Crowd()
    for guest in entered(party, "a", "a", "b"):
        party.leave(guest)
        party.leave(guest)
        party.waits(guest)
    assert party.counts()["connections"] == 0
    assert (party._addresses, party._waiting) == ({}, {})


async def test_whose_time_is_up_hears_of_it() -> None:
    now = [50.0]
    party = Crowd(lambda: now[0])
    early, late = entered(party, "a", "b")
    late.deadline = 200.0
    party._sweep()
    now[0] = 101.0
    party._sweep()
    assert (early.said, late.said) == (["overdue"], [])


@pytest.mark.parametrize(
    ("address", "counted_as"),
    [
        ("10.0.0.1", "10.0.0.1"), ("2001:db8:0:1::7", "2001:db8:0:1::/64"), ("2001:db8:0:1:ffff::", "2001:db8:0:1::/64"),
        ("::ffff:10.0.0.1", "10.0.0.1"), ("fe80::1%eth0", "fe80::/64"), ("unix", "unix"), ("", ""),
    ],
)  # fmt: skip
def test_an_ipv6_network_counts_as_one_client(address: str, counted_as: str) -> None:
    assert neighbourhood(address) == counted_as
