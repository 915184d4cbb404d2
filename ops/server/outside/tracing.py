"""--tracing-config-file: spans of requests, sent to a collector. Its modules are loaded only with a file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kubechronicle.actors.supervisor import ChildSpec
from kubechronicle.api.configuration import tracing as configuration
from kubechronicle.api.configuration.tracing import DEFAULT_ENDPOINT, TracingConfiguration
from kubechronicle.http.outgoing.client import Outgoing
from kubechronicle.http.outgoing.networks import Network
from kubechronicle.http.outgoing.remote_server import RemoteServer
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.settings.settings import Settings

if TYPE_CHECKING:
    from kubechronicle.http.tracing import Tracing

FLAG: Final = "--tracing-config-file"


def tracing_configuration(settings: Settings) -> TracingConfiguration | None:
    """Return the content of the file; None without one. Raise OperatorError."""
    file = settings.tracing_config_file
    if file is None:
        return None
    try:
        return configuration.parse(file.read_bytes())
    except OSError as error:
        raise OperatorError(f"{FLAG}: cannot read {file}: {error.strerror}") from None
    except ValueError as error:
        raise OperatorError(f"{FLAG}: {file}: {' '.join(str(error).split())}") from None


@dataclass(frozen=True, slots=True)
class TracingParts:
    """The tracing of a server, and the tasks that it needs."""

    tracing: Tracing
    children: list[ChildSpec]


def tracing_parts(
    plan: TracingConfiguration | None, outgoing: Outgoing, *, server: str, version: str
) -> TracingParts | None:
    """Return the parts; None without a configuration."""
    if plan is None:
        return None
    from kubechronicle.http.tracing import Tracing, by_grpc, by_http, grpc_channel

    endpoint = plan.endpoint or DEFAULT_ENDPOINT
    children = []
    if endpoint.startswith(("http://", "https://")):
        peer = RemoteServer(url=endpoint, http_allowed=True)
        send = by_http(outgoing.client(peer, network=Network.CONTROL_PLANE), endpoint)
    else:
        channel = grpc_channel(endpoint, outgoing.networks.connect_to(Network.DIRECT))
        children.append(ChildSpec(name="trace-collector", run=channel.run))
        send = by_grpc(channel)
    tracing = Tracing(plan.sampling_rate or 0, instance=server, version=version, send=send)
    return TracingParts(tracing, [*children, ChildSpec(name="tracing", run=tracing.run)])
