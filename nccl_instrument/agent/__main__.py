"""`python -m nccl_instrument.agent`: puts the parts together and ends them in order.

SIGTERM and SIGINT end it with a last cut, sent or spooled. Exit codes: 0 asked to stop, 1 a bug, 2 wrong configuration.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Mapping
from functools import partial

from nccl_instrument.agent.dumps.dumper import Dumper
from nccl_instrument.agent.nics import NicReader, find_nics
from nccl_instrument.agent.options import Options, parse_options
from nccl_instrument.agent.processes.trainer import Bookmark
from nccl_instrument.agent.sending.bookmarks import load_bookmarks
from nccl_instrument.agent.sending.handover import Handover
from nccl_instrument.agent.sending.kafka import KafkaDoor, read_config
from nccl_instrument.agent.sending.losses import Losses
from nccl_instrument.agent.sending.post import DUMPS_PATH, ORDERS_PATH, Door
from nccl_instrument.agent.sending.spool import Spool, SpoolTaken
from nccl_instrument.agent.sending.uplink import Uplink
from nccl_instrument.agent.sweep import Sweep
from nccl_instrument.agent.traffic.sampling import Sampling

LOG = logging.getLogger("diogenes.agent")


def main() -> int:
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s agent: %(message)s")
    options = parse_options(sys.argv[1:], os.environ)
    try:
        door = batch_door(options)
        dumps_door = Door(options.server, options.token_file, options.ca_file, path=DUMPS_PATH)
        bookmarks, settled = load_bookmarks(options.spool)
        spool = Spool(options.spool, options.spool_bytes_max, settled)
    except (ValueError, OSError, SpoolTaken) as error:
        LOG.error("%s", error)
        return 2
    if door.is_plain and door.host not in ("127.0.0.1", "::1", "localhost"):
        LOG.warning("the token travels unencrypted to %s: use https", door.host)
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    crashed = threading.Event()
    threading.excepthook = partial(_end_after_crash, stopped, crashed)
    run(options, (door, dumps_door), spool, bookmarks, stopped)
    return 1 if crashed.is_set() else 0


def batch_door(options: Options) -> Door | KafkaDoor:
    """The road batches take. Raises ValueError, OSError."""
    if options.kafka is None:
        return Door(options.server, options.token_file, options.ca_file)
    orders = Door(options.server, options.token_file, options.ca_file, path=ORDERS_PATH)
    kafka = options.kafka
    return KafkaDoor(kafka.servers, kafka.topic, options.token_file, read_config(kafka.config), orders)


def run(
    options: Options,
    doors: tuple[Door | KafkaDoor, Door],
    spool: Spool,
    bookmarks: Mapping[str, Bookmark],
    stopped: threading.Event,
) -> None:
    """Sweep and send until `stopped`. doors: for batches, for dumps."""
    door, dumps_door = doors
    losses, nics = Losses(), NicReader(find_nics(options.nics))
    ip = local_address(door.host, door.port)
    uplink = Uplink(door, spool, losses)
    hand_over = Handover(spool, losses, uplink.offer)
    sampling = Sampling(options.epoch_us * 1000, options.traffic_rows_max)
    sweep = Sweep(options.folders, options.node, ip, nics, losses, bookmarks, hand_over, sampling, options.standpoint)
    dumper = Dumper(dumps_door, options.node, losses, sweep.here)
    uplink.resend, uplink.ask = sweep.ask_for, dumper.ask
    place = options.kafka.servers if options.kafka else options.server
    LOG.info("node %s, sending to %s; %d batches in the spool", options.node, place, len(spool))
    nics.start()
    uplink.start()
    dumper.start()
    gc.freeze()  # nothing made so far is garbage: collections then cost nothing
    try:
        sweep.run(stopped)
    finally:
        nics.stop()
        uplink.stop()
        dumper.stop()
    LOG.info("stopped; %d batches in the spool", len(spool))
    spool.close()


def _end_after_crash(stopped: threading.Event, crashed: threading.Event, crash: threading.ExceptHookArgs) -> None:
    """An agent without one of its threads would look well and send nothing: better to end and be started again."""
    LOG.error("a thread crashed", exc_info=crash.exc_value)
    crashed.set()
    stopped.set()


def local_address(host: str, port: int) -> str:
    """The address this node uses towards the server, '' when there is no way to it. Sends nothing."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError:
        return ""


if __name__ == "__main__":
    sys.exit(main())
