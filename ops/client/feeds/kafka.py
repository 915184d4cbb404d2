"""A topic of Kafka, written with confluent-kafka, the maintained client on librdkafka.

By default the key of a message is the revision, and all go to partition 0: Kafka keeps the order within a partition
only. With the object as key, the changes of each object stay in order, in any number of partitions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from kubechronicle.api.values.objects import Object
from kubechronicle.ops.client.feeds.sinks import (
    SOURCE,
    Unavailable,
    attributes,
    encoded,
    load_client,
    object_key,
    revision_of,
)
from kubechronicle.ops.errors import OperatorError

CONNECTING: Final = 10.0
"""Seconds in which a broker must answer at the start."""
DELIVERING: Final = 60.0
"""Seconds in which a batch must be acknowledged; then it is sent again."""
GIVING_UP: Final = 5.0
USUAL: Final[Mapping[str, Any]] = {
    "client.id": "kubechronicle-feed",
    "enable.idempotence": True,  # a repetition within the client neither duplicates nor reorders
    "acks": "all",
    "compression.type": "lz4",
    "message.timeout.ms": 30_000,
}
MENDS: Final[Mapping[str, str]] = {
    "MSG_SIZE_TOO_LARGE": "; raise message.max.bytes of the client (--sink-config) and of the topic",
    "UNKNOWN_TOPIC_OR_PART": "; create the topic first",
    "_UNKNOWN_TOPIC": "; create the topic first",
    "_UNKNOWN_PARTITION": "; create the topic first",
    "TOPIC_AUTHORIZATION_FAILED": "; the client may not write to the topic",
    "CLUSTER_AUTHORIZATION_FAILED": "; the client may not write to the cluster",
    "SASL_AUTHENTICATION_FAILED": "; check the credentials in --sink-config",
    "INVALID_RECORD": "",
}
"""Errors that sending again does not mend."""


class KafkaSink:
    """``config``: properties of librdkafka, such as sasl.username; and ``source``: the source of the events."""

    def __init__(self, brokers: str, topic: str, config: Mapping[str, str], *, key: str) -> None:
        self._kafka = load_client("confluent_kafka", "kafka")
        self._brokers, self._topic, self._by_object = brokers, topic, key == "object"
        self._source = config.get("source", SOURCE)
        given = {name: value for name, value in config.items() if name != "source"}
        self._config = {**USUAL, "bootstrap.servers": brokers, **given, "logger": _Silent()}
        self._producer = self._open()
        try:
            self._producer.list_topics(topic, timeout=CONNECTING)
        except self._kafka.KafkaException as error:
            raise OperatorError(f"Kafka at {brokers}: {_text(error.args[0])}") from None

    def send(self, changes: Sequence[Object]) -> None:
        failed: list[tuple[str, Any]] = []
        for change in changes:
            self._produce(change, failed)
        left = self._producer.flush(DELIVERING)
        if failed or left:
            self._begin_anew()
            revision, error = failed[0] if failed else (revision_of(changes[0]), None)
            raise self._explained(revision, error)

    def close(self) -> None:
        self._producer.flush(GIVING_UP)

    def _open(self) -> Any:
        try:
            return self._kafka.Producer(self._config)
        except (self._kafka.KafkaException, TypeError, ValueError) as error:
            raise OperatorError(f"the settings for Kafka: {_text(error.args[0])}") from None

    def _begin_anew(self) -> None:
        """Drop what is not acknowledged: the whole batch comes again, in order."""
        self._producer.purge()
        self._producer.flush(GIVING_UP)
        self._producer = self._open()

    def _produce(self, change: Object, failed: list[tuple[str, Any]]) -> None:
        revision = revision_of(change)

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                failed.append((revision, error))

        headers = [(f"ce_{name}", value.encode()) for name, value in attributes(change, self._source).items()]
        where = {} if self._by_object else {"partition": 0}
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    encoded(change),
                    (object_key(change) if self._by_object else revision).encode(),
                    headers=[("content-type", b"application/json"), *headers],
                    timestamp=int(datetime.fromisoformat(change["time"]).timestamp() * 1000),
                    on_delivery=delivered,
                    **where,
                )
                return
            except BufferError:  # the queue is full: let it be sent
                self._producer.poll(1.0)
            except self._kafka.KafkaException as error:
                failed.append((revision, error.args[0]))
                return

    def _explained(self, revision: str, error: Any) -> Exception:
        if error is None:
            return Unavailable(f"Kafka at {self._brokers} has not acknowledged revision {revision}")
        text = f"Kafka at {self._brokers}, topic {self._topic}: {_text(error)}"
        if error.name() in MENDS:
            return OperatorError(f"{text}, with revision {revision}{MENDS[error.name()]}")
        return Unavailable(text)


class _Silent:
    """Takes the log lines of librdkafka, which would repeat every second what the feed says once."""

    def log(self, *_: object) -> None:
        pass


def _text(error: Any) -> str:
    return str(error.str()) if hasattr(error, "str") else str(error)
