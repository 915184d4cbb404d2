"""The choice of a feed's destination by its address.

    -                              lines of JSON on stdout
    file:changes.jsonl             the same, appended to a file
    https://audit.example.com/in   batches of CloudEvents, by POST
    kafka://one:9092,two/changes   a topic of Kafka
    nats://nats:4222/k8s.changes   a subject of NATS JetStream

An adapter is imported only if it is chosen: the clients of brokers are optional.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from kubechronicle.ops.client.feeds.lines import FileSink, StdoutSink
from kubechronicle.ops.client.feeds.sinks import Sink
from kubechronicle.ops.errors import OperatorError

KEYS: Final = ("revision", "object")


def open_sink(address: str, *, config_file: str = "", key: str = "revision") -> Sink:
    """Return the destination at an address. ``key``: of messages of Kafka: revision or object. OperatorError."""
    config = _config(config_file)
    if address == "-":
        return StdoutSink()
    try:
        parts = urlsplit(address)
        topic, hosts = parts.path.strip("/"), parts.netloc
    except ValueError:
        parts = None
    if parts is not None and parts.scheme == "file":
        return FileSink(address.partition(":")[2].removeprefix("//"))
    if parts is not None and parts.scheme in ("http", "https") and hosts:
        from kubechronicle.ops.client.feeds.webhook import WebhookSink

        return WebhookSink(address, config)
    if parts is not None and parts.scheme == "kafka" and hosts and topic:
        from kubechronicle.ops.client.feeds.kafka import KafkaSink

        return KafkaSink(hosts, topic, config, key=key)
    if parts is not None and parts.scheme in ("nats", "tls") and hosts and topic:
        from kubechronicle.ops.client.feeds.nats import NatsSink

        return NatsSink(f"{parts.scheme}://{hosts}", topic.replace("/", "."), config)
    raise OperatorError(
        f"--to {address}: must be -, file:PATH, https://…, kafka://HOST:PORT/TOPIC or nats://HOST:PORT/SUBJECT"
    )


def _config(file: str) -> Mapping[str, str]:
    """Return the settings in a file: one ``name = value`` a line; # begins a comment. OperatorError."""
    if not file:
        return {}
    try:
        lines = Path(file).expanduser().read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise OperatorError(f"cannot read --sink-config {file}: {error}") from None
    found = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, sign, value = line.partition("=")
        if not sign or not name.strip():
            raise OperatorError(f"{file}:{number}: must be name = value")
        found[name.strip()] = value.strip()
    return found
