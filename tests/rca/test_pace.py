"""The straggler trigger: the pace of live jobs, and of made-up ones at the edges of the thresholds."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from rca.settings import DEFAULT
from rca.triggers.pace import Pace, Slowing, history_ns, learn, pace_from_json, pace_to_json, slowing, unjudged
from rca.triggers.pieces import were_pieces

BEGAN_US: dict[str, list[int]] = json.loads((Path(__file__).parent / "recorded_slow" / "began_us.json").read_text())
HEALTHY = ("healthy", "pause", "checkpoint_0")
ONSET_S = 30.0
SECOND = 1_000_000_000
MS = 1_000_000


def watched(began: list[int]) -> tuple[Pace, list[tuple[float, Slowing | None]]]:
    """The last pace, and what each look (one a second) says of iterations that begin at these times in ns."""
    pace, looks = Pace(), []
    whole = [(first + SECOND, then - first) for first, then in pairwise(began)]
    for second in range(1, began[-1] // SECOND + 1):
        pace = learn(pace, [one for one in whole if sum(one) - SECOND <= second * SECOND], DEFAULT)
        looks.append((float(second), slowing(pace, DEFAULT)))
    return pace, looks


def recorded(name: str) -> list[tuple[float, Slowing | None]]:
    return watched([us * 1000 for us in BEGAN_US[name]])[1]


def steps(*lengths: tuple[int, int]) -> list[int]:
    """Times at which iterations begin: n iterations of each length (n, ms)."""
    began = [0]
    for n, ms in lengths:
        for _ in range(n):
            began.append(began[-1] + ms * MS)
    return began


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_job_with_its_pauses_and_checkpoints_is_not_slow(name: str) -> None:
    assert not any(slow for _, slow in recorded(name))


@pytest.mark.parametrize("name", [name for name in BEGAN_US if name not in HEALTHY])
def test_a_slowdown_of_a_live_job_is_seen_with_its_onset_and_not_before(name: str) -> None:
    first, slow = next((second, slow) for second, slow in recorded(name) if slow)
    assert first > ONSET_S - 2 and slow is not None
    assert slow.since_ns / SECOND - 1 == pytest.approx(ONSET_S, abs=2.5)


def test_until_enough_is_usual_a_job_is_not_said_to_be_at_its_usual_pace() -> None:
    said = [unjudged(watched(steps((n, 1000)))[0], DEFAULT) for n in (2, 25, 60)]
    assert said[0] == "Whether it is slow cannot be told yet: 2 of 40 iterations are known."
    assert 20 <= int(said[1].split(": ")[1].split(" of ")[0]) <= 25
    assert said[2] == ""


def test_a_halved_pace_is_told_after_three_iterations() -> None:
    _, looks = watched(steps((60, 1000), (10, 2000)))
    assert next(second for second, slow in looks if slow) == 66.0


@pytest.mark.parametrize("ms", [2000, 3000])
def test_one_or_two_long_iterations_are_nobodys_fault(ms: int) -> None:
    assert not any(slow for _, slow in watched(steps((60, 1000), (2, ms), (60, 1000)))[1])


def test_an_evaluation_every_minute_is_nobodys_fault() -> None:
    rounds = [(200, 300), (1, 8000)] * 4
    assert not any(slow for _, slow in watched(steps((30, 300), *rounds))[1])


def taking_turns(n: int, *ms: int) -> list[tuple[int, int]]:
    """n iterations whose lengths take turns."""
    return [(1, ms[at % len(ms)]) for at in range(n)]


@pytest.mark.parametrize("n_before", [75, 600])
@pytest.mark.parametrize(("ms", "after_s"), [(106, 4), (112, 4), (150, 4)])
def test_a_small_slowdown_that_stands_out_is_told_after_four_seconds_in_a_young_job_too(
    ms: int, after_s: int, n_before: int
) -> None:
    looks = watched(steps((n_before, 100), (300, ms)))[1]
    onset_s = n_before / 10
    first = next(second for second, slow in looks if slow)
    assert onset_s + after_s <= first <= onset_s + after_s + 1.5
    assert all(slow for second, slow in looks if second >= first), "and it is told from then on"


def test_one_that_stands_out_less_needs_longer() -> None:
    looks = watched(steps(*taking_turns(600, 98, 99, 100, 101, 102), *taking_turns(300, 110, 111, 112, 113, 114)))[1]
    assert 69 <= next(second for second, slow in looks if slow) <= 72


@pytest.mark.parametrize("n_before", [40, 600])
def test_what_is_over_after_three_seconds_is_no_slowdown_however_clear(n_before: int) -> None:
    assert not any(slow for _, slow in watched(steps((n_before, 100), (20, 150), (300, 100)))[1])


def test_a_job_of_which_little_is_known_is_told_slow_no_sooner() -> None:
    looks = watched(steps((60, 100), (300, 112)))[1]
    assert next(second for second, slow in looks if slow) >= 6 + 9


def test_what_came_before_an_onset_is_usual_and_what_came_since_is_not() -> None:
    pace, _ = watched(steps((90, 100), (40, 150)))
    assert len(pace.usual_ns) >= 65 and set(pace.usual_ns) == {100 * MS}


def test_a_stretch_as_slow_as_many_usual_ones_were_is_told_no_sooner() -> None:
    before = [(98, 100), (2, 120)] * 8
    looks = watched(steps(*before, (300, 115)))[1]
    assert next(second for second, slow in looks if slow) >= 80 + 9


def test_a_large_slowdown_of_a_job_that_went_at_two_paces_is_told_though_nothing_is_far_from_both() -> None:
    """Of a live job: a slowdown by a sixth, too small amid its jitter, came and went; then a rank was slowed by half."""
    told = json.loads((Path(__file__).parent / "recorded_slow" / "two_paces.json").read_text())
    pace, later = pace_from_json(told["pace"]), [(began, length) for began, length in told["later"]]
    onset_ns = next(began for (began, length) in later if length > 290 * MS)
    for number in range(1, len(later) + 1):
        pace = learn(pace, later[:number], DEFAULT)
        slow = slowing(pace, DEFAULT)
        if slow:
            break
    assert slow and slow.kind == "slower" and slow.since_ns == onset_ns
    assert 8 <= (later[number - 1][0] - onset_ns) / SECOND <= 12


def hiccups(n: int, one_in: int, seed: int) -> list[tuple[int, int]]:
    """n steps of a second, of which about one in so many takes two and a half."""
    draw = Random(seed)
    return [(1, 2500 if draw.random() * one_in < 1 else 1000 + draw.randrange(10)) for _ in range(n)]


def test_hiccups_as_frequent_as_ever_are_no_slowdown() -> None:
    looks = [look for seed in range(2, 5) for look in watched(steps(*hiccups(400, 12, seed)))[1]]
    assert not any(slow for _, slow in looks)


@pytest.mark.parametrize("seed", [1, 4])
def test_hiccups_that_become_four_times_as_frequent_are_one(seed: int) -> None:
    _, looks = watched(steps(*hiccups(200, 24, seed), *hiccups(80, 6, seed + 6)))
    first, slow = next((second, slow) for second, slow in looks if slow)
    assert slow is not None and slow.kind == "recurring" and first > 200


def test_a_warm_up_that_gets_faster_is_no_slowdown_and_no_normal() -> None:
    pace, looks = watched(steps((10, 4000), (10, 2500), (100, 500)))
    assert not any(slow for _, slow in looks)
    assert max(pace.usual_ns) == 500 * MS


def test_pieces_of_a_long_step_that_first_looks_took_for_iterations_are_forgotten() -> None:
    bursts = [at for step in range(3) for at in range(step * 1800 * MS, (step * 1800 + 330) * MS, 30 * MS)]
    steps_ms = [(n * 1800 * MS, 1800 * MS) for n in range(60)]
    pace = learn(Pace(), [(SECOND + first, then - first) for first, then in pairwise(bursts)], DEFAULT)
    assert pace.recent, "more of them than a warm-up leaves out"
    for n in range(4, len(steps_ms)):
        pace = learn(pace, [(SECOND + began, length) for began, length in steps_ms[:n]], DEFAULT)
        assert slowing(pace, DEFAULT) is None
    assert set(pace.usual_ns) == {1800 * MS}


def test_bursts_after_a_long_pause_are_not_taken_for_iterations() -> None:
    """Of a simulated job of 10,000 GPUs that evaluated for 16 s: the window held what came since, less than four steps."""
    pace, _ = watched(steps((60, 1234)))
    back = steps((60, 1234))[-1] + SECOND + 16 * SECOND
    bursts = [(back + at * 1234 * MS + k * 8 * MS, 8 * MS) for at in range(3) for k in range(24)]
    for n in (24, 48, 72):
        assert learn(pace, bursts[:n], DEFAULT) == pace
    rounds = [(back + at * 1234 * MS, 1234 * MS) for at in range(30)]
    for n in range(4, 31):
        pace = learn(pace, rounds[:n], DEFAULT)
        assert slowing(pace, DEFAULT) is None
    assert set(pace.usual_ns) == {1234 * MS} and pace.seen_ns == rounds[-1][0]


def test_a_job_that_becomes_faster_has_another_usual() -> None:
    pace, looks = watched(steps((60, 2000), (120, 500), (30, 1000)))
    assert any(slow and slow.usual_ns == 500 * MS for _, slow in looks) and pace.usual_ns[-1] == 500 * MS


@pytest.mark.parametrize("times", [2, 5])
def test_a_job_that_becomes_slow_soon_does_not_forget_how_fast_it_was(times: int) -> None:
    _, looks = watched(steps((45, 300), (40, 300 * times)))
    assert any(slow is not None and slow.usual_ns == 300 * MS for _, slow in looks)


def test_what_another_rank_counts_a_moment_earlier_or_later_is_the_same_loop() -> None:
    began = [SECOND + n * 300 * MS for n in range(6)]
    theirs = [one + (-1) ** n * 20 * MS for n, one in enumerate(began)]
    assert not were_pieces(began, began[-1], [(first, then - first) for first, then in pairwise(theirs)])
    assert were_pieces(began, began[-1], [(began[0] + 10 * MS, 900 * MS)])


def test_an_iteration_with_a_checkpoint_in_it_makes_nothing_a_piece() -> None:
    began = [SECOND + n * 300 * MS for n in range(60)]
    rounds = [(first, then - first) for first, then in pairwise(began[40:])]
    assert not were_pieces(began, began[-1], [(began[20], 6000 * MS), *rounds])
    assert not were_pieces(began, began[-1], [])


def test_what_is_slow_does_not_become_normal() -> None:
    pace, looks = watched(steps((60, 500), (400, 800)))
    assert looks[-1][1] is not None and max(pace.usual_ns) == 500 * MS


def creeping(n: int, share: float) -> list[tuple[int, int]]:
    """n hundreds of iterations, each hundred longer than the one before by this share."""
    return [(100, round(500 * (1 + share) ** at)) for at in range(n)]


def test_a_pace_that_varies_for_hours_and_stays_has_not_crept() -> None:
    there_and_back = [(10, 500 + ms) for ms in (0, 8, 16, 8, 0, 12, 4)]
    assert not any(slow for _, slow in watched(steps((20, 500), *there_and_back * 12))[1])


def test_what_creeps_is_seen_against_the_start_though_each_step_is_learned_as_normal() -> None:
    _, looks = watched(steps((300, 500), *creeping(24, 0.01)))
    first = next(slow for _, slow in looks if slow)
    assert (first.kind, first.usual_ns) == ("crept", 500 * MS)
    assert 1.05 < first.now_ns / first.usual_ns < 1.1
    last = looks[-1][1]
    assert last is not None and last.now_ns / last.usual_ns > 1.2


def test_a_job_that_crept_and_recovers_is_no_longer_slow() -> None:
    pace, looks = watched(steps((300, 500), *creeping(12, 0.01), (300, 500)))
    assert any(slow for _, slow in looks) and looks[-1][1] is None
    assert pace.anchor_ns == 500 * MS


def test_a_pace_kept_before_there_were_anchors_begins_with_what_is_normal_then() -> None:
    pace, _ = watched(steps((400, 700)))
    old = {name: value for name, value in pace_to_json(pace).items() if name != "anchor_ns"}
    known = pace_from_json(old)
    assert slowing(known, DEFAULT) is None
    began = [(known.seen_ns + at * 700 * MS, 700 * MS) for at in range(1, 200)]
    assert learn(known, began, DEFAULT).anchor_ns == 700 * MS


def test_a_job_that_recovers_is_no_longer_slow() -> None:
    assert watched(steps((60, 500), (100, 800), (200, 500)))[1][-1][1] is None


def varied(*lengths: tuple[int, float]) -> list[int]:
    """The same with lengths that vary by half a percent, as one of 60 transfers does."""
    random, began = Random(5), [0]
    for n, ms in lengths:
        for _ in range(n):
            began.append(began[-1] + round(ms * MS * (1 + random.gauss(0, 0.005))))
    return began


@pytest.mark.parametrize("ms", [20, 45, 60])
def test_a_small_slowdown_of_short_iterations_is_told_by_what_was_usual_for_longer_than_they_are_kept_in_long_jobs(
    ms: int,
) -> None:
    n = 30_000 // ms
    _, looks = watched(varied((n, ms), (n, 1.07 * ms)))
    second, slow = next((second, slow) for second, slow in looks if slow)
    assert 30 < second < 43 and slow is not None
    assert slow.usual_ns == pytest.approx(ms * MS, rel=0.01) and slow.now_ns == pytest.approx(1.07 * ms * MS, rel=0.01)


def test_short_iterations_become_usual_as_long_ones_do() -> None:
    pace, looks = watched(varied((1000, 60)))
    assert len(pace.usual_ns) > 400 and not any(slow for _, slow in looks)


def test_a_pace_survives_as_json() -> None:
    pace, _ = watched(steps((60, 500), (40, 800)))
    assert pace_from_json(json.loads(json.dumps(pace_to_json(pace)))) == pace
    assert pace_from_json({}) == Pace()
    with pytest.raises(ValueError, match="not a pace"):
        pace_from_json({"recent": 5})


def test_a_longer_history_is_asked_for_only_while_a_looks_window_holds_too_few_iterations() -> None:
    followed, _ = watched(steps((60, 500)))
    assert history_ns(followed, followed.seen_ns + SECOND, DEFAULT) == 0
    assert history_ns(Pace(), 100 * SECOND, DEFAULT) == DEFAULT.pace_ns
    assert history_ns(Pace(tried_ns=95 * SECOND), 100 * SECOND, DEFAULT) == 0
    warming, _ = watched(steps((5, 500)))
    assert not warming.usual_ns and history_ns(warming, warming.seen_ns + 2 * SECOND, DEFAULT) == 0
    assert history_ns(warming, warming.seen_ns + 20 * SECOND, DEFAULT) == DEFAULT.pace_ns
    rarely = followed.seen_ns + 12 * SECOND  # looked at every ten seconds, through a window of fifteen
    assert history_ns(followed, rarely, DEFAULT, 15 * SECOND) == 0
    assert history_ns(followed, rarely, DEFAULT, 10 * SECOND) == (12 + 8 * 0.5) * SECOND, "there would be a gap"
    slow, _ = watched(steps((60, 2_500)))
    assert history_ns(slow, slow.seen_ns + 12 * SECOND, DEFAULT, 15 * SECOND) > 0, "too few, were they twice as long"
    long, _ = watched(steps((60, 20_000)))
    assert history_ns(long, long.seen_ns + 100 * SECOND, DEFAULT) == DEFAULT.history_max_ns
    young, _ = watched(steps((30, 2_500)))
    assert 0 < len(young.usual_ns) < DEFAULT.usual_iterations_min
    assert history_ns(young, young.seen_ns + 12 * SECOND, DEFAULT, 15 * SECOND) == DEFAULT.pace_ns, (
        "it may be of pieces"
    )


def test_a_longer_history_holds_iterations_that_are_known_and_all_that_are_not_up_to_its_limit() -> None:
    """The rhythm that is known comes first in it, and what came since is whole; after a gap beyond the limit it begins anew."""
    slow, _ = watched(steps((60, 2_500)))
    for behind_s in (12, 40, 90, 219):
        back_ns = history_ns(slow, slow.seen_ns + behind_s * SECOND, DEFAULT, 15 * SECOND)
        assert back_ns == behind_s * SECOND + 8 * 2_500_000_000
    assert history_ns(slow, slow.seen_ns + 300 * SECOND, DEFAULT, 15 * SECOND) == DEFAULT.history_max_ns
