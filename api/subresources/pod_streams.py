"""Options of exec, attach and portforward: their query, the container they mean, and the kubelet's URL for them.

Source: k8s.io/kubernetes ``pkg/registry/core/pod/strategy.go``, and the conversions of k8s.io/api/core/v1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote, quote_plus, urlencode

from kubechronicle.api.errors import status
from kubechronicle.api.errors.field_errors import go_quote
from kubechronicle.api.meta.request_info import Query

REQUIRES_CREATE: Final = "AuthorizePodWebsocketUpgradeCreatePermission"
"""The gate without which a user who may GET a session by WebSocket needs no right to create one."""
TRANSLATES: Final = "ExtendWebSocketsToKubelet"
"""The declared feature of nodes whose kubelet understands v5.channel.k8s.io and tunnels itself; the gate to use it."""
_COMMANDS: Final = "TranslateStreamCloseWebsocketRequests"
UNDERSTANDS: Final[Mapping[str, str]] = {
    "exec": _COMMANDS, "attach": _COMMANDS, "portforward": "PortForwardWebsockets"
}  # fmt: skip
"""Subresource -> the gate without which this server understands no WebSockets of it."""
WEBSOCKET_GATES: Final = (TRANSLATES, *UNDERSTANDS.values())
STREAMS: Final = ("stdin", "stdout", "stderr", "tty")
KINDS: Final[Mapping[str, str]] = {
    "exec": "PodExecOptions",
    "attach": "PodAttachOptions",
    "portforward": "PodPortForwardOptions",
}
PATHS: Final[Mapping[str, str]] = {"exec": "exec", "attach": "attach", "portforward": "portForward"}
"""The kubelet's paths."""
CONTAINERS: Final = ("initContainers", "containers", "ephemeralContainers")
MAX_PORT: Final = (1 << 16) - 1

Options = dict[str, Any]


def read_options(subresource: str, query: Query) -> Options:
    """Return the options object of a request. StatusError 400 for a port that is no number.

    >>> read_options("exec", Query("stdin=0&stdout&command=ls&command=-l"))
    {'kind': 'PodExecOptions', 'apiVersion': 'v1', 'stdout': True, 'command': ['ls', '-l']}
    """
    options: Options = {"kind": KINDS[subresource], "apiVersion": "v1"}
    if subresource == "portforward":
        ports = [port for text in query.get_all("ports") for port in _ports(text)]
        return {**options, "ports": ports} if ports else options
    options.update({name: True for name in STREAMS if name in query and _is_true(query.get(name))})
    if query.get("container"):
        options["container"] = query.get("container")
    if subresource == "exec":
        options["command"] = list(query.get_all("command")) or None
    return options


def _is_true(text: str) -> bool:
    """Read a boolean as apimachinery converts it: the empty text is true."""
    return text != "0" and text.lower() != "false"


def _ports(text: str) -> Iterator[int]:
    for part in text.split(","):
        if not (part.isascii() and part.isdecimal()):
            raise status.bad_request(
                f"cannot convert to []int32: strconv.ParseUint: parsing {go_quote(part)}: invalid syntax"
            )
        if int(part) > MAX_PORT:
            raise status.bad_request(
                f"cannot convert to []int32: strconv.ParseUint: parsing {go_quote(part)}: value out of range"
            )
        yield int(part)


def place_of(pod: Mapping[str, Any], subresource: str, options: Options) -> tuple[str, str]:
    """Return the node of a pod, and path and query of the request to its kubelet. StatusError 400."""
    container = "" if subresource == "portforward" else container_of(pod, options.get("container", ""))
    return node_of(pod), kubelet_target(subresource, pod, container, options)


def container_of(pod: Mapping[str, Any], name: str) -> str:
    """Return the container that a session means. StatusError 400 if there is no such one, or several to choose from."""
    spec, pod_name = pod.get("spec") or {}, pod["metadata"]["name"]
    names = [each["name"] for field in CONTAINERS for each in spec.get(field) or ()]
    if name:
        if name not in names:
            raise status.bad_request(f"container {name} is not valid for pod {pod_name}")
        return name
    containers: Sequence[Mapping[str, Any]] = spec.get("containers") or ()
    if len(containers) == 1:
        return str(containers[0]["name"])
    wanted = f"a container name must be specified for pod {pod_name}"
    raise status.bad_request(f"{wanted}, choose one of: [{' '.join(names)}]" if containers else wanted)


def node_of(pod: Mapping[str, Any]) -> str:
    """Return the node of a pod. StatusError 400 if it is not scheduled."""
    node = str((pod.get("spec") or {}).get("nodeName") or "")
    if not node:
        raise status.bad_request(f"pod {pod['metadata']['name']} does not have a host assigned")
    return node


def kubelet_target(subresource: str, pod: Mapping[str, Any], container: str, options: Options) -> str:
    """Return path and query of the request to the kubelet. The names in the query are sorted, as Go encodes them."""
    meta = pod["metadata"]
    parts = [PATHS[subresource], meta["namespace"], meta["name"]]
    if subresource != "portforward":
        parts.append(container)
    params: list[tuple[str, str]] = [("command", str(each)) for each in options.get("command") or ()]
    params += [(_PARAMETERS[name], "1") for name in STREAMS if options.get(name)]
    if options.get("ports"):
        params.append(("port", ",".join(str(port) for port in options["ports"])))
    params.sort(key=_name)
    path = "/" + "/".join(quote(part) for part in parts)
    return f"{path}?{urlencode(params, quote_via=quote_plus)}" if params else path


_PARAMETERS: Final[Mapping[str, str]] = {"stdin": "input", "stdout": "output", "stderr": "error", "tty": "tty"}
_name: Callable[[tuple[str, str]], str] = lambda pair: pair[0]  # noqa: E731 - sort by name only; the order of commands stays
