"""A wanted change of pace: what was usual before is let go, what has been seen since becomes usual at once."""

from __future__ import annotations

from dataclasses import replace

from rca.settings import DEFAULT
from rca.triggers.anew import anew
from rca.triggers.kinds import Kind
from rca.triggers.normal import Normal, normal_from_json, normal_to_json
from rca.triggers.pace import learn, slowing
from tests.rca.test_pace import MS, SECOND, steps, watched


def test_a_pace_that_is_wanted_is_no_longer_slow_and_what_is_slower_than_it_is() -> None:
    pace, looks = watched(steps((60, 500), (60, 800)))
    slow = looks[-1][1]
    assert slow is not None
    wanted = anew(Normal(pace=pace), slow.since_ns, 1).pace
    assert slowing(wanted, DEFAULT) is None, "nothing is known to compare with"
    at = wanted.seen_ns
    usual = [(at + (i + 1) * 800 * MS, 800 * MS) for i in range(40)]
    wanted = learn(wanted, usual, DEFAULT)
    assert slowing(wanted, DEFAULT) is None and set(wanted.usual_ns) == {800 * MS}
    assert wanted.anchor_ns == 800 * MS, "or it would be said to have crept there"
    slower = [(usual[-1][0] + 800 * MS + i * 2 * SECOND, 2 * SECOND) for i in range(8)]
    found = slowing(learn(wanted, slower, DEFAULT), DEFAULT)
    assert found is not None and (found.kind, found.usual_ns) == ("halved", 800 * MS)


def test_the_new_normal_is_known_from_what_was_seen_since_without_another_warm_up() -> None:
    pace, looks = watched(steps((60, 500), (60, 800)))
    slow = looks[-1][1]
    assert slow is not None
    wanted = anew(Normal(pace=pace), slow.since_ns, 1).pace
    fed = learn(wanted, [(wanted.seen_ns + 800 * MS, 800 * MS)], DEFAULT)
    assert len(fed.usual_ns) >= DEFAULT.usual_iterations_min and set(fed.usual_ns) == {800 * MS}


def test_kinds_of_ops_forget_what_was_before_the_change() -> None:
    blocks = ((SECOND, SECOND, 1.0), (5 * SECOND, 2 * SECOND, 2.0))
    kind = Kind("tp AllReduce", 0, 4, usual=((SECOND, 1.0),) * 8, recent=blocks)
    found = anew(Normal(kinds={"0": kind}), 4 * SECOND, 1).kinds["0"]
    assert found == replace(kind, usual=(), recent=blocks[1:])


def test_intervals_are_learned_again_and_pauses_and_the_declaration_are_kept_as_json() -> None:
    normal = Normal(intervals={"all": {80: 500}}, pauses_ns=(7 * SECOND,))
    wanted = anew(normal, SECOND, 12)
    assert (wanted.count(), wanted.pauses_ns) == (0, (7 * SECOND,))
    assert normal_from_json(normal_to_json(wanted)) == wanted
