"""`manage.py consume`: an ingest process that reads trace batches from Kafka; as many of them as the topic has partitions."""

from __future__ import annotations

import asyncio
import signal
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from ingest.consume import Consumption, make_consumer
from ingest.door.server import Server
from nccl_instrument.agent.sending.kafka import read_config


class Command(BaseCommand):
    help = "Read trace batches that agents with UPLINK=kafka send, and store them as ingest does."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--servers", default=settings.KAFKA_SERVERS, help="HOST:PORT, several separated by commas")
        parser.add_argument("--topic", default=settings.KAFKA_TOPIC)
        parser.add_argument("--group", default=settings.KAFKA_GROUP)
        parser.add_argument(
            "--config", type=Path, default=settings.KAFKA_CONFIG, help="file of librdkafka's properties"
        )

    def handle(self, *args: Any, servers: str, topic: str, group: str, config: Path | None, **options: Any) -> None:
        if not servers:
            raise CommandError("Which brokers? Set DIOGENES_KAFKA_SERVERS, or give --servers HOST:PORT.")
        try:
            consumer = make_consumer(servers, topic, group, read_config(config))
        except (ValueError, OSError) as error:
            raise CommandError(str(error)) from error
        asyncio.run(_consume(consumer))


async def _consume(consumer: Any) -> None:
    """Until SIGTERM or SIGINT."""
    server = Server()
    await server.start()
    consumption = Consumption(server, consumer)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, consumption.stop)
    try:
        await consumption.run()
    finally:
        await server.stop()
