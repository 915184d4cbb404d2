"""Feeds to a real NATS server, and to a broker that speaks Kafka's protocol: order, acknowledgement, lost brokers."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from postgres_fixture import free_port

from kubechronicle.ops.client.feeds.opening import open_sink
from kubechronicle.ops.client.feeds.sinks import Unavailable
from kubechronicle.ops.errors import OperatorError

BIN = Path(__file__).resolve().parents[3] / ".cache" / "bin"
TOPIC = "changes"
OF = {"apiVersion": "apps/v1", "resource": "deployments", "namespace": "shop"}


@contextmanager
def running(*command: str | Path, ready: str) -> Iterator[subprocess.Popen[str]]:
    """Run a broker within the block, from the line that says it is ready on. It is killed at the end."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True) as process:
        try:
            assert process.stdout is not None
            lines: list[str] = []
            while ready not in (line := process.stdout.readline()):
                lines.append(line)
                assert line, "".join(lines)
            yield process
        finally:
            process.kill()


def changes(first: int, last: int) -> list[dict[str, Any]]:
    return [
        {
            "metadata": {"name": str(revision)},
            "operation": "Update",
            "time": "2026-11-20T18:00:00.000001Z",
            "object": {
                "apiVersion": "apps/v1",
                "resource": "deployments",
                "namespace": "shop",
                "name": f"w{revision % 3}",
            },
        }
        for revision in range(first, last + 1)
    ]


# -- Kafka ------------------------------------------------------------------------------------------------------------


def kafka(port: int) -> Any:
    return running(BIN / "kafka-broker", str(port), TOPIC, ready="ready")


def consumed(port: int, count: int) -> list[tuple[int, str, dict[str, bytes]]]:
    """Return (partition, key, headers) of messages in the order of their partitions."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": f"127.0.0.1:{port}", "group.id": "test", "enable.auto.commit": False})
    found = []
    for partition in (0, 1):
        consumer.assign([TopicPartition(TOPIC, partition, 0)])
        while (
            len(found) < count and (message := consumer.poll(5.0 if partition == 0 and not found else 1.0)) is not None
        ):
            assert message.error() is None
            found.append((message.partition(), message.key().decode(), dict(message.headers())))
    consumer.close()
    return found


def test_kafka_keeps_the_order_of_the_log_in_one_partition() -> None:
    port = free_port()
    with kafka(port):
        sink = open_sink(f"kafka://127.0.0.1:{port}/{TOPIC}")
        sink.send(changes(1, 700))
        sink.send(changes(701, 1000))
        sink.close()
        found = consumed(port, 1000)
    assert [(partition, key) for partition, key, _ in found] == [(0, str(number)) for number in range(1, 1001)]
    headers = found[0][2]
    assert (headers["ce_id"], headers["ce_type"]) == (b"1", b"dev.kubechronicle.history.update")
    assert headers["content-type"] == b"application/json"


def test_kafka_keeps_the_order_of_each_object_by_its_key() -> None:
    port = free_port()
    with kafka(port):
        sink = open_sink(f"kafka://127.0.0.1:{port}/{TOPIC}", key="object")
        sink.send(changes(1, 60))
        sink.close()
        found = consumed(port, 60)
    assert {key for _, key, _ in found} == {f"shop/deployments.apps/w{place}" for place in range(3)}
    for place in range(3):
        own = [(partition, int(headers["ce_id"])) for partition, key, headers in found if key.endswith(f"w{place}")]
        assert len({partition for partition, _ in own}) == 1
        assert [number for _, number in own] == list(range(place or 3, 61, 3))


def test_a_lost_kafka_gets_the_batch_again(tmp_path: Path) -> None:
    port, config = free_port(), tmp_path / "kafka.properties"
    config.write_text("message.timeout.ms = 2000\nlinger.ms = 1\nreconnect.backoff.max.ms = 200\n")
    with kafka(port):
        sink = open_sink(f"kafka://127.0.0.1:{port}/{TOPIC}", config_file=str(config))
        sink.send(changes(1, 10))
    with pytest.raises(Unavailable, match="Kafka at"):
        sink.send(changes(11, 20))
    with kafka(port):
        sink.send(changes(11, 20))
        assert [key for _, key, _ in consumed(port, 10)] == [str(number) for number in range(11, 21)]


def test_a_kafka_that_is_not_there_or_refuses_is_explained(tmp_path: Path) -> None:
    port, config = free_port(), tmp_path / "kafka.properties"
    with pytest.raises(OperatorError, match=f"Kafka at 127.0.0.1:{port}"):
        open_sink(f"kafka://127.0.0.1:{port}/{TOPIC}")
    config.write_text("no.such.property = 1\n")
    with pytest.raises(OperatorError, match=r"the settings for Kafka: .*no\.such\.property"):
        open_sink(f"kafka://127.0.0.1:{port}/{TOPIC}", config_file=str(config))
    with kafka(port):
        config.write_text("message.max.bytes = 1000\n")
        sink = open_sink(f"kafka://127.0.0.1:{port}/{TOPIC}", config_file=str(config))
        large = changes(1, 1)
        large[0]["summary"] = "x" * 5000
        with pytest.raises(OperatorError, match=r"with revision 1; raise message\.max\.bytes"):
            sink.send(large)


# -- NATS -------------------------------------------------------------------------------------------------------------


def nats_server(port: int, store: Path) -> Any:
    return running(
        BIN / "nats-server", "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(store), ready="Server is ready"
    )


async def with_stream(port: int, *, read: int = 0) -> list[tuple[str, dict[str, str]]]:
    """Add the stream and, with ``read``, return its messages: (Nats-Msg-Id, headers)."""
    import nats

    connection = await nats.connect(f"nats://127.0.0.1:{port}")
    stream = connection.jetstream()
    await stream.add_stream(name="K8S", subjects=["k8s.>"])
    found = []
    if read:
        reader = await stream.pull_subscribe("k8s.>")
        while len(found) < read:
            for message in await reader.fetch(min(100, read - len(found)), timeout=10):
                found.append((message.headers["Nats-Msg-Id"], message.headers))
                await message.ack()
    await connection.close()
    return found


def test_nats_keeps_the_order_and_drops_repetitions(tmp_path: Path) -> None:
    port = free_port()
    with nats_server(port, tmp_path):
        asyncio.run(with_stream(port))
        sink = open_sink(f"nats://127.0.0.1:{port}/k8s.changes")
        sink.send(changes(1, 200))
        sink.send(changes(150, 250))  # as after a restart
        sink.close()
        found = asyncio.run(with_stream(port, read=250))
    assert [number for number, _ in found] == [str(number) for number in range(1, 251)]
    assert found[0][1]["ce-subject"] == "shop/deployments.apps/w1"


def test_a_lost_nats_gets_the_batch_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubechronicle.ops.client.feeds.nats.ACKNOWLEDGING", 1.0)
    port = free_port()
    with nats_server(port, tmp_path):
        asyncio.run(with_stream(port))
        sink = open_sink(f"nats://127.0.0.1:{port}/k8s.changes")
        sink.send(changes(1, 10))
    with pytest.raises(Unavailable, match="has not acknowledged revision 11"):
        sink.send(changes(11, 20))
    with nats_server(port, tmp_path):
        for _ in range(30):
            try:
                sink.send(changes(11, 20))
                break
            except Unavailable:
                continue
        found = asyncio.run(with_stream(port, read=20))
    assert [number for number, _ in found] == [str(number) for number in range(1, 21)]


def test_a_nats_that_is_not_there_or_has_no_stream_is_explained(tmp_path: Path) -> None:
    port, config = free_port(), tmp_path / "nats"
    with pytest.raises(OperatorError, match=f"NATS at nats://127.0.0.1:{port}"):
        open_sink(f"nats://127.0.0.1:{port}/k8s.changes")
    config.write_text("passwrd = x\n")
    with pytest.raises(OperatorError, match="NATS has no setting passwrd"):
        open_sink(f"nats://127.0.0.1:{port}/k8s.changes", config_file=str(config))
    with nats_server(port, tmp_path):
        sink = open_sink(f"nats://127.0.0.1:{port}/k8s.changes")
        with pytest.raises(OperatorError, match=r"no stream of NATS .* takes k8s\.changes; add one"):
            sink.send(changes(1, 1))
