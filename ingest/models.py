"""What ingest knows of teams, jobs and the machines they run on: fields and constraints only.

Trace batches themselves have no model here: their tables are partitioned, made by migration and written by store.py
alone. A communicator id is NCCL's 64-bit hash, kept as a signed bigint with the same bits. Times ending in `_ns` are
unix nanoseconds on the server's clock.
"""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q


class Team(models.Model):
    """Who owns jobs. Tokens are bound to a team, so a job of another team cannot even be named."""

    name = models.CharField(max_length=128, unique=True)
    created_at = models.DateTimeField(auto_now_add=True)
    batches_refused = models.BigIntegerField(default=0)
    last_refusal = models.CharField(max_length=300, default="", blank=True)
    last_refused_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return self.name


class AgentToken(models.Model):
    """An agent's right to send, and nothing else. Only the token's sha256 is kept."""

    team = models.ForeignKey(Team, models.CASCADE, related_name="agent_tokens")
    label = models.CharField(max_length=128)
    token_sha256 = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField(auto_now_add=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"{self.label} ({self.team})"


class Job(models.Model):
    """One training run, named by its launcher inside its team."""

    team = models.ForeignKey(Team, models.CASCADE, related_name="jobs")
    name = models.CharField(max_length=128)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["team", "name"], name="one_job_per_team_and_name")]

    def __str__(self) -> str:
        return self.name


class Attempt(models.Model):
    """One start of a job's processes. restart_count and world_size are -1 and 0 while nobody declared them.

    heard_since: since when some node has been heard at any time; None while none is (listening.py). roster_version rises
    when a rank or a member of a communicator changes: readers may cache by it; to_infer: it has risen since ranks were last
    inferred. end_reason is empty while it runs.
    """

    class State(models.TextChoices):
        RUNNING = "running"
        ENDED = "ended"

    class EndReason(models.TextChoices):
        RESTARTED = "restarted"  # other processes of the job began
        SILENT = "silent"
        PROCESSES_GONE = "processes gone"

    job = models.ForeignKey(Job, models.CASCADE, related_name="attempts")
    number = models.IntegerField()
    restart_count = models.IntegerField(default=-1)
    world_size = models.IntegerField(default=0)
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)
    last_received_at = models.DateTimeField()
    heard_since = models.DateTimeField(null=True, blank=True)
    state = models.CharField(max_length=16, choices=State.choices, default=State.RUNNING)
    end_reason = models.CharField(max_length=16, choices=EndReason.choices, default="", blank=True)
    roster_version = models.BigIntegerField(default=0)
    to_infer = models.BooleanField(default=False)

    class Meta:
        indexes = [models.Index(fields=["id"], condition=Q(to_infer=True), name="attempts_to_infer")]
        constraints = [
            models.UniqueConstraint(fields=["job", "number"], name="attempts_are_numbered"),
            models.UniqueConstraint(fields=["job"], condition=Q(state="running"), name="one_running_attempt_per_job"),
            models.CheckConstraint(
                condition=Q(state="running", ended_at=None) | Q(state="ended", ended_at__isnull=False),
                name="an_ended_attempt_says_when",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.job} attempt {self.number}"


class Listening(models.Model):
    """One row: since and until when ingest could receive batches without a gap (listening.py)."""

    since = models.DateTimeField()
    until = models.DateTimeField()

    def __str__(self) -> str:
        return f"listening since {self.since}"


class Node(models.Model):
    """A machine in one attempt, with what its agent sent and what we had to refuse of it.

    late_received_ns: when a batch from a spool last came; fresh batches overtake those, so `catching_up` outlasts them.
    batches_after_end: cut by living processes after the attempt had ended: nobody looks at those.
    comm_tables: digests of the comm tables that were stored of it, the newest few (known_boots.py). cluster, rack: where it
    stands, as its agent says; empty where it does not.
    """

    attempt = models.ForeignKey(Attempt, models.CASCADE, related_name="nodes")
    name = models.CharField(max_length=128)
    watermark_ns = models.BigIntegerField(default=0)
    received_ns = models.BigIntegerField(default=0)
    late_received_ns = models.BigIntegerField(default=0)
    first_ns = models.BigIntegerField(default=0)
    clock_offset_ns = models.BigIntegerField(default=0)
    wrong_clock = models.BooleanField(default=False)
    catching_up = models.BooleanField(default=False)
    batches = models.BigIntegerField(default=0)
    rows_dropped = models.BigIntegerField(default=0)
    batches_refused = models.BigIntegerField(default=0)
    batches_after_end = models.BigIntegerField(default=0)
    losses = models.JSONField(default=dict)
    comm_tables = models.BinaryField(default=b"")
    cluster = models.CharField(max_length=32, default="", db_default="", blank=True)
    rack = models.CharField(max_length=32, default="", db_default="", blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["attempt", "name"], name="one_node_per_attempt_and_name")]

    def __str__(self) -> str:
        return self.name


class Boot(models.Model):
    """One life of an agent, as a job sees it: which batch numbers arrived, and how its two clocks relate to ours.

    The column `received` (int8multirange, made by migration) holds the numbers: it is what makes a resent batch change
    nothing. floor: numbers below it, when too many were missing to remember which, are given up: whether they arrived
    is not known any more. sync_ns is the smallest (received − monotonic) seen; pace counts batches in a row that came as
    far apart as they were cut.
    """

    job = models.ForeignKey(Job, models.CASCADE, related_name="boots")
    node_name = models.CharField(max_length=128)
    boot_id = models.BinaryField(max_length=16)
    sync_ns = models.BigIntegerField(null=True)
    newest_mono_ns = models.BigIntegerField(default=0)
    pace = models.IntegerField(default=0)
    floor = models.BigIntegerField(default=0)
    first_received_at = models.DateTimeField(auto_now_add=True)
    last_received_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["job", "node_name", "boot_id"], name="one_boot_per_job_and_node")
        ]


class Rank(models.Model):
    """One process of a job. `rank` is -1 until somebody says it; `replaced` when a later process took the same rank.

    gone_ns: data time of the tick that first saw the process dead, 0 while it lives.
    """

    attempt = models.ForeignKey(Attempt, models.CASCADE, related_name="ranks")
    node = models.ForeignKey(Node, models.CASCADE, related_name="ranks")
    pid = models.IntegerField()
    process_started = models.BigIntegerField()
    rank = models.IntegerField(default=-1)
    replaces = models.BooleanField(default=False)
    replaced = models.BooleanField(default=False)
    rank_inferred = models.BooleanField(default=False)
    coordinates_inferred = models.BooleanField(default=False)
    local_rank = models.IntegerField(default=-1)
    tp = models.SmallIntegerField(default=-1)
    pp = models.SmallIntegerField(default=-1)
    dp = models.SmallIntegerField(default=-1)
    ep = models.SmallIntegerField(default=-1)
    transport = models.SmallIntegerField(default=0)
    ip = models.CharField(max_length=40, default="", blank=True)
    gpu_bus_id = models.CharField(max_length=20, default="", blank=True)
    gpu_uuid = models.CharField(max_length=44, default="", blank=True)
    nic = models.CharField(max_length=16, default="", blank=True)
    gid = models.CharField(max_length=40, default="", blank=True)
    library_version = models.BigIntegerField(default=0)
    abi = models.SmallIntegerField(default=0)
    counters_seen = models.SmallIntegerField(default=0)
    gone_ns = models.BigIntegerField(default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["node", "pid", "process_started"], name="one_rank_row_per_process"),
            models.UniqueConstraint(
                fields=["attempt", "rank"], condition=Q(rank__gte=0, replaced=False), name="one_process_per_rank"
            ),
        ]


class Communicator(models.Model):
    """NCCL's group of ranks, kept for the whole attempt. n_ranks is 0 while nobody said how large it is."""

    attempt = models.ForeignKey(Attempt, models.CASCADE, related_name="communicators")
    comm_id = models.BigIntegerField()
    n_ranks = models.IntegerField()
    n_nodes = models.IntegerField(default=-1)
    name = models.CharField(max_length=32, default="", blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["attempt", "comm_id"], name="one_communicator_per_attempt_and_id"),
            models.CheckConstraint(condition=Q(n_ranks__gte=0), name="a_communicator_has_ranks_or_unknown"),
        ]


class CommMember(models.Model):
    """A process's place in a communicator."""

    communicator = models.ForeignKey(Communicator, models.CASCADE, related_name="members")
    comm_rank = models.IntegerField()
    process = models.ForeignKey(Rank, models.CASCADE, related_name="memberships")
    joined_ns = models.BigIntegerField(default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["communicator", "comm_rank"], name="one_member_per_comm_rank"),
            models.CheckConstraint(condition=Q(comm_rank__gte=0), name="comm_ranks_count_from_zero"),
        ]


class OpRollup(models.Model):
    """Finished ops of a communicator and kind in 10 s, as one writer of roll-ups counted them.

    `part` names the sum in one ingest process's memory: rows of several parts add up. n_ops counts op records, one for
    each rank that reported; durations are of those whose end is known (n_timed, bytes_timed). bins: how many ops took
    how long (rollup.BIN).
    """

    # No constraint in the database: dropping a stretch of roll-ups would lock the table of attempts.
    attempt = models.ForeignKey(Attempt, models.CASCADE, related_name="rollups", db_constraint=False)
    comm_id = models.BigIntegerField()
    func = models.SmallIntegerField()
    bucket_ns = models.BigIntegerField()
    part = models.BigIntegerField()
    n_ops = models.BigIntegerField()
    n_timed = models.BigIntegerField()
    bytes = models.BigIntegerField()
    bytes_timed = models.BigIntegerField(default=0)
    duration_sum_ns = models.BigIntegerField()
    duration_max_ns = models.BigIntegerField()
    bins = models.BinaryField(default=b"")

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["attempt", "bucket_ns", "comm_id", "func", "part"], name="one_rollup_per_key_and_part"
            )
        ]


class LetGo(models.Model):
    """How much of a kind retention let go of, ever (let_go.py)."""

    kind = models.CharField(max_length=16, primary_key=True)
    n = models.BigIntegerField()
    last_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.n} {self.kind}"


class PinnedWindow(models.Model):
    """A stretch of an attempt's traces that retention must keep: an incident's evidence."""

    attempt = models.ForeignKey(Attempt, models.CASCADE, related_name="pinned_windows")
    start_ns = models.BigIntegerField()
    end_ns = models.BigIntegerField()
    pinned_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["attempt", "start_ns", "end_ns"], name="a_window_is_pinned_once"),
            models.CheckConstraint(condition=Q(end_ns__gt=F("start_ns")), name="a_pinned_window_is_not_empty"),
        ]


class DumpRequest(models.Model):
    """Stacks and Flight Recorder dumps that the agents of an attempt are asked for.

    ranks: None for all. looks: taken apart_s seconds from each other. asked_by: a person's name, empty when the program asked
    for itself. bytes: kept of it, compressed; left_out: parts for which there was no room.
    """

    class State(models.TextChoices):
        OPEN = "open"
        ANSWERED = "answered"  # by every node
        EXPIRED = "expired"

    attempt = models.ForeignKey(Attempt, models.CASCADE, related_name="dump_requests")
    kinds = models.JSONField()
    ranks = models.JSONField(null=True)
    looks = models.SmallIntegerField(default=1)
    apart_s = models.FloatField(default=2.0)
    asked_by = models.CharField(max_length=150, default="", blank=True)
    asked_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    state = models.CharField(max_length=16, choices=State.choices, default=State.OPEN)
    bytes = models.BigIntegerField(default=0)
    left_out = models.IntegerField(default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["attempt"], condition=Q(state="open"), name="one_open_request_per_attempt"),
        ]

    def __str__(self) -> str:
        return f"dumps of {self.attempt} at {self.asked_at}"


class DumpAnswer(models.Model):
    """What one node answered to one look of a request; a resent answer changes nothing."""

    request = models.ForeignKey(DumpRequest, models.CASCADE, related_name="answers")
    node_name = models.CharField(max_length=128)
    boot = models.CharField(max_length=32)
    look = models.SmallIntegerField()
    received_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["request", "node_name", "boot", "look"], name="one_answer_per_request_node_and_look"
            )
        ]


class StoredDump(models.Model):
    """One dump of one process, compressed as its agent sent it, or the reason why there is none (dumps.Part)."""

    answer = models.ForeignKey(DumpAnswer, models.CASCADE, related_name="parts")
    kind = models.CharField(max_length=16)
    rank = models.IntegerField()
    pid = models.IntegerField()
    parent = models.IntegerField()
    command = models.CharField(max_length=300, default="", blank=True)
    taken_ns = models.BigIntegerField()
    silent = models.CharField(max_length=300, default="", blank=True)
    by = models.CharField(max_length=300, default="", blank=True)
    length = models.IntegerField(default=0)
    packed = models.BinaryField(default=b"")
