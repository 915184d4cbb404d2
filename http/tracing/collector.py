"""Connections to the collector: OTLP over gRPC (``host:port``, ``unix:///path``), or over HTTP (``https://host:port``)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

import trio

from kubechronicle.http.outgoing.client import Client
from kubechronicle.http.outgoing.errors import AskError
from kubechronicle.http.outgoing.grpc.channel import GrpcChannel, GrpcError
from kubechronicle.http.outgoing.networks import Connect
from kubechronicle.http.tracing.tracing import TIMEOUT, Send, SendError

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
PROTOBUF = "application/x-protobuf"
GRPC_PORT = 4317


def grpc_channel(endpoint: str, way: Connect) -> GrpcChannel:
    """Return the channel to a collector, without TLS, as kube-apiserver connects. It must be run.

    ``way``: to its host.
    """
    return GrpcChannel(connector(endpoint, way), authority=endpoint.removeprefix("dns:///").removeprefix("dns://"))


def connector(endpoint: str, way: Connect) -> Callable[[], Awaitable[trio.SocketStream]]:
    """Return the function that opens a connection to a gRPC endpoint."""
    if endpoint.startswith("unix:"):
        path = endpoint.removeprefix("unix:").removeprefix("//")

        async def connect_unix() -> trio.SocketStream:
            return await trio.open_unix_socket(path)

        return connect_unix
    address = urlsplit("//" + endpoint.rpartition("/")[2])

    async def connect() -> trio.SocketStream:
        return await way(address.hostname or "localhost", address.port or GRPC_PORT)

    return connect


def by_grpc(channel: GrpcChannel) -> Send:
    async def send(message: bytes) -> None:
        try:
            await channel.unary(EXPORT, message, timeout=TIMEOUT)
        except GrpcError as error:
            raise SendError(str(error)) from None

    return send


def by_http(client: Client, url: str) -> Send:
    target = url if urlsplit(url).path.strip("/") else url.rstrip("/") + "/v1/traces"

    async def send(message: bytes) -> None:
        try:
            answer = await client.ask("POST", target, body=message, headers={"content-type": PROTOBUF})
        except AskError as error:
            raise SendError(str(error)) from None
        if answer.status // 100 != 2:
            raise SendError(f"the collector answered {answer.status}")

    return send
