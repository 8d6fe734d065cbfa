"""A Kafka cluster on this machine without a broker: librdkafka's own mock cluster, which speaks the protocol over TCP.

The library in confluent-kafka's wheel carries it for its own tests; its C functions are called here, so that brokers can
be taken down and errors be injected. Clients are the real ones and know nothing of it. What it does not have: a disk,
replication, log-append times, access rights.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import confluent_kafka

PRODUCER = 0
NOT_LEADER, TIMED_OUT, TOO_LARGE = 6, 7, 10  # error codes of the protocol
PRODUCE, OFFSET_COMMIT = 0, 8


@cache
def library() -> ctypes.CDLL:
    folder = Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs"
    (path,) = folder.glob("librdkafka*.so*")
    loaded = ctypes.CDLL(str(path))
    loaded.rd_kafka_conf_new.restype = ctypes.c_void_p
    loaded.rd_kafka_new.restype = ctypes.c_void_p
    loaded.rd_kafka_new.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
    loaded.rd_kafka_mock_cluster_new.restype = ctypes.c_void_p
    loaded.rd_kafka_mock_cluster_new.argtypes = [ctypes.c_void_p, ctypes.c_int]
    loaded.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    loaded.rd_kafka_mock_cluster_bootstraps.argtypes = [ctypes.c_void_p]
    loaded.rd_kafka_mock_topic_create.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_int]
    for name in ("rd_kafka_mock_broker_set_down", "rd_kafka_mock_broker_set_up"):
        getattr(loaded, name).argtypes = [ctypes.c_void_p, ctypes.c_int32]
    for name in ("rd_kafka_mock_cluster_destroy", "rd_kafka_destroy"):
        getattr(loaded, name).argtypes = [ctypes.c_void_p]
        getattr(loaded, name).restype = None
    return loaded


class Cluster:
    """Brokers 1 to n_brokers, and topics with partitions. `servers`: what clients are told."""

    def __init__(self, n_brokers: int = 3) -> None:
        self.n_brokers = n_brokers
        said = ctypes.create_string_buffer(512)
        self._holder = library().rd_kafka_new(PRODUCER, library().rd_kafka_conf_new(), said, len(said))
        assert self._holder, said.value
        self._cluster = library().rd_kafka_mock_cluster_new(self._holder, n_brokers)
        assert self._cluster
        self.servers = str(library().rd_kafka_mock_cluster_bootstraps(self._cluster).decode())

    def make_topic(self, name: str, n_partitions: int = 2) -> None:
        assert library().rd_kafka_mock_topic_create(self._cluster, name.encode(), n_partitions, self.n_brokers) == 0

    def take_down(self, *brokers: int) -> None:
        for broker in brokers or range(1, self.n_brokers + 1):
            assert library().rd_kafka_mock_broker_set_down(self._cluster, broker) == 0

    def bring_up(self, *brokers: int) -> None:
        for broker in brokers or range(1, self.n_brokers + 1):
            assert library().rd_kafka_mock_broker_set_up(self._cluster, broker) == 0

    def fail_next(self, request: int, *errors: int) -> None:
        """The next requests of this kind are answered with these errors."""
        raised = (ctypes.c_int * len(errors))(*errors)
        library().rd_kafka_mock_push_request_errors_array(
            ctypes.c_void_p(self._cluster), ctypes.c_int16(request), ctypes.c_size_t(len(errors)), raised
        )

    def forgive(self, request: int) -> None:
        """No such errors any more."""
        library().rd_kafka_mock_clear_request_errors(ctypes.c_void_p(self._cluster), ctypes.c_int16(request))

    def stop(self) -> None:
        library().rd_kafka_mock_cluster_destroy(self._cluster)
        library().rd_kafka_destroy(self._holder)
