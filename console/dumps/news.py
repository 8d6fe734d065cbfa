"""When dumps arrive: pages are told, the summary is made, and it is said which incident is to be diagnosed again with them.

Looked for beside every look at an attempt, not in it: reading them may take longer than a look may. A diagnosis waits until
every node has answered, or for some seconds: a rank that is merely late to answer must not look like one that cannot.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from console.dumps.models import DumpSummary
from console.dumps.reading import answers_of, debt_of, dumps_of, owe, read_newest, summarise
from console.dumps.wanted import BEFORE, ask_quietly, asked_since, began_at
from console.incidents.live import DumpsRow
from console.incidents.models import Incident
from console.incidents.publish import publish_dumps
from ingest.door.dumps import LATE, LIFE, progress_of
from ingest.models import DumpAnswer, DumpRequest
from ingest.traces.retention import pin_window
from ingest.window import Window
from nccl_instrument.dumps import RECORDER, STACKS
from rca.findings import Symptom, SymptomKind
from rca.settings import SECOND_NS, Settings
from rca.stacks.analysis import doing_of
from rca.stacks.idle import benign_of
from rca.triggers.no_progress import died_by_exception, died_symptom, is_by_status
from rca.words import named

PARTIAL_AFTER: Final = timedelta(seconds=12)
"""So long after it was asked a request is taken as it is: whoever has not answered by then may not."""
UNREAD_FOR: Final = timedelta(minutes=15)
"""Dumps that have come are read as long as this after they were asked for, however full the queue was."""
SUMMARY_APART_S: Final = 2.0
SUMMARY_SHARE: Final = 3.0  # of the time; a summary that takes long is made less often
FRESH: Final = timedelta(seconds=180)
AGAIN: Final = timedelta(seconds=120)
INTENDED: Final = ("KeyboardInterrupt", "SystemExit")


def attempts_asked(request_ids: set[int]) -> set[int]:
    """The attempts that these requests are of."""
    return set(DumpRequest.objects.filter(pk__in=request_ids).values_list("attempt_id", flat=True))


def has_dumps(attempt_id: int) -> bool:
    """Whether dumps of this attempt may still come, have come unread, or a look has left them to be read."""
    return bool(debt_of(attempt_id)) or _waited_for().filter(attempt=attempt_id).exists()


def attempts_dumping() -> set[int]:
    """Attempts, ended ones too, of which dumps may still come, or of which answers lie that nobody has summed up yet.

    Who is told to read them comes too late when the queue is full, and nothing else looks at an attempt that has ended.
    """
    return set(_waited_for().values_list("attempt_id", flat=True))


def _waited_for() -> QuerySet[DumpRequest]:
    now = timezone.now()
    recent = DumpRequest.objects.filter(asked_at__gte=now - UNREAD_FOR)
    unread = Exists(DumpAnswer.objects.filter(request=OuterRef("pk"))) & ~Exists(
        DumpSummary.objects.filter(request=OuterRef("pk"), is_ripe=True)
    )
    return recent.filter(Q(asked_at__gte=now - LIFE - LATE) | unread)


def follow_dumps(attempt_id: int) -> Incident | None:
    """Take note of what has come for the attempt's newest requests; the incident that is to be diagnosed again with it.

    That is owed before it is noted that the dumps have come, and until the diagnosis is stored: a worker may end in between.
    """
    requests = asked_since(attempt_id, timezone.now() - UNREAD_FOR)
    n_answers = answers_of(one.pk for one in requests)
    made = {one.request_id: one for one in DumpSummary.objects.filter(request__in=requests).defer("stacks", "recorder")}
    incident = Incident.objects.filter(attempt=attempt_id).order_by("-id").first()
    for request in requests:
        n, is_ripe = n_answers.get(request.pk, 0), _is_ripe(request)
        if n and _is_due(request, made.get(request.pk), n, is_ripe=is_ripe):
            concerned = incident if incident is not None and request.asked_at >= began_at(incident) - BEFORE else None
            if concerned is not None and is_ripe:
                owe(attempt_id)
            summarise(request, n, is_ripe=is_ripe)
            if concerned is not None:
                _tell(concerned, request)
    if incident is None or not debt_of(attempt_id):
        return None
    dumps_of(incident)  # here, and not while looks wait for the diagnosis
    return incident


def _is_due(request: DumpRequest, made: DumpSummary | None, n_answers: int, *, is_ripe: bool) -> bool:
    if made is None:
        return True
    if made.n_answers == n_answers:
        return is_ripe and not made.is_ripe  # once more, when nobody is waited for any longer
    age_s = (timezone.now() - made.made_at).total_seconds()
    return request.state != DumpRequest.State.OPEN or age_s > max(SUMMARY_APART_S, SUMMARY_SHARE * made.took_s)


def _is_ripe(request: DumpRequest) -> bool:
    """Whether a diagnosis may rest on what has come."""
    return request.state != DumpRequest.State.OPEN or timezone.now() >= request.asked_at + PARTIAL_AFTER


def _tell(incident: Incident, request: DumpRequest) -> None:
    """Pages hear of it, and what came is kept as long as the incident's other evidence."""
    progress = progress_of(request.pk)
    row = DumpsRow(
        incident=incident.pk, request=request.pk, nodes_answered=progress.nodes_answered,
        nodes_expected=progress.nodes_expected, ranks_answered=progress.ranks_answered,
    )  # fmt: skip
    publish_dumps(row)
    asked_ns = int(request.asked_at.timestamp() * SECOND_NS)
    pin_window(incident.attempt_id, asked_ns, asked_ns + SECOND_NS)


def explanation_of(attempt_id: int, symptom: Symptom, thresholds: Settings) -> str:
    """What stacks say that explains a job that stands still, '' when they do not (yet): a checkpoint, an evaluation, a
    compilation.

    Asked of idle jobs, and of those without traces, where nothing else tells. It holds for some minutes only, and the stacks
    are asked for again before: what was a checkpoint may be stuck now.
    """
    lasted_s, patience_ns = _lasted_s(symptom), _patience_ns(symptom, thresholds)
    if lasted_s * SECOND_NS >= patience_ns:
        return ""
    now = timezone.now()
    since = now - min(FRESH, timedelta(seconds=lasted_s))
    fresh = [one for one in asked_since(attempt_id, since) if STACKS in one.kinds]
    dumped = read_newest(fresh)
    said = ""
    if dumped is not None:
        said = benign_of(doing_of(dumped.first, dumped.last), len(dumped.ranks_asked(STACKS)))
    if said and now - fresh[0].asked_at > AGAIN:
        ask_quietly(attempt_id, (STACKS,))
    return said


def is_held(attempt_id: int, symptom: Symptom) -> bool:
    """Whether an incident waits for the dumps: without traces only they say whether somebody is late or stuck."""
    if not is_by_status(symptom):
        return False
    asked = asked_since(attempt_id, timezone.now() - timedelta(seconds=_lasted_s(symptom)))
    if not asked:
        return ask_quietly(attempt_id, (STACKS, RECORDER)) is not None
    return not _is_ripe(asked[0])


def death_of(attempt_id: int, window: Window) -> Symptom | None:
    """The symptom of a job all of whose processes are gone and that had no traces, when some ended by an exception.

    Its dumps are asked for first, as long as anybody can answer. A job that was cancelled or came to its end has no exceptions.
    """
    died = died_by_exception(window)
    if not died or Incident.objects.filter(attempt=attempt_id).exists():
        return None
    asked = [one for one in asked_since(attempt_id, timezone.now() - LIFE) if RECORDER in one.kinds]
    if not asked and ask_quietly(attempt_id, (RECORDER,)) is not None:
        return None
    if asked and not _is_ripe(asked[0]):
        return None
    dumped = read_newest(asked)
    ended = dumped.recording.ended if dumped is not None and dumped.recording is not None else {}
    ended = {rank: why for rank, why in ended.items() if not why.startswith(INTENDED)}
    such = f", such as {next(iter(ended.values()))}" if ended else ""
    sentence = f"All processes are gone; the programs of {named(ended or died)} ended by exceptions{such}."
    return died_symptom(window, ended or died, sentence[:500])


def _lasted_s(symptom: Symptom) -> float:
    return symptom.numbers.get("idle_s", symptom.numbers.get("stalled_s", FRESH.total_seconds()))


def _patience_ns(symptom: Symptom, thresholds: Settings) -> int:
    """For how long stacks may explain it."""
    if symptom.kind is SymptomKind.IDLE:
        return thresholds.idle_patience_ns
    return thresholds.io_patience_ns if is_by_status(symptom) else 0
