"""Table columns of the core kinds with few columns, merged with those of the kinds' folders.

Each function returns the cells of one object in the order of its columns in PRINTERS. Source: Kubernetes'
``pkg/printers/internalversion``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since, condition, containers_text, joined, labels_text
from kubechronicle.api.builtin.common.printer import (
    AGE,
    CONTAINERS,
    IMAGES,
    NAME,
    Column,
    Printer,
    age_of,
    at,
    field,
    name_of,
    wide_field,
)
from kubechronicle.api.builtin.core.node import columns as node
from kubechronicle.api.builtin.core.persistentvolume import columns as persistentvolume
from kubechronicle.api.builtin.core.persistentvolumeclaim import columns as persistentvolumeclaim
from kubechronicle.api.builtin.core.pod import columns as pod
from kubechronicle.api.builtin.core.podtemplate import columns as podtemplate
from kubechronicle.api.builtin.core.service import columns as service
from kubechronicle.api.values.objects import ReadOnlyObject

ENDPOINTS_SHOWN: Final = 3


def _replication_controller(obj: ReadOnlyObject, since: Since) -> list[Any]:
    names, images = containers_text(at(obj, "spec", "template", "spec", "containers"))
    return [
        name_of(obj),
        at(obj, "spec", "replicas", default=0),
        at(obj, "status", "replicas", default=0),
        at(obj, "status", "readyReplicas", default=0),
        age_of(obj, since),
        names,
        images,
        labels_text(at(obj, "spec", "selector")),
    ]


def _host_port(ip: str, port: int) -> str:
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


def _endpoints_text(subsets: Iterable[ReadOnlyObject]) -> str:
    shown: list[str] = []
    total = 0
    for subset in subsets:
        addresses = [address.get("ip", "") for address in subset.get("addresses") or ()]
        ports = subset.get("ports")
        # Headless services may have no ports: then addresses are shown alone.
        if ports:
            listed = [_host_port(ip, port.get("port", 0)) for port in ports for ip in addresses[:ENDPOINTS_SHOWN]]
        else:
            listed = addresses
        total += len(addresses) * max(1, len(ports or ()))
        shown += listed[: ENDPOINTS_SHOWN - len(shown)]
    return joined(shown, ENDPOINTS_SHOWN, total=total)


def _endpoints(obj: ReadOnlyObject, since: Since) -> list[Any]:
    subsets = obj.get("subsets")
    return [name_of(obj), _endpoints_text(subsets) if subsets else "<none>", age_of(obj, since)]


def _namespace(obj: ReadOnlyObject, since: Since) -> list[Any]:
    return [name_of(obj), at(obj, "status", "phase", default=""), age_of(obj, since)]


def _secret(obj: ReadOnlyObject, since: Since) -> list[Any]:
    return [name_of(obj), obj.get("type") or "", len(obj.get("data") or ()), age_of(obj, since)]


def _config_map(obj: ReadOnlyObject, since: Since) -> list[Any]:
    return [name_of(obj), len(obj.get("data") or ()) + len(obj.get("binaryData") or ()), age_of(obj, since)]


def _service_account(obj: ReadOnlyObject, since: Since) -> list[Any]:
    return [name_of(obj), age_of(obj, since)]


def _component_status(obj: ReadOnlyObject, since: Since) -> list[Any]:
    healthy = condition(obj.get("conditions"), "Healthy")
    if healthy is None:
        return [name_of(obj), "Unknown", "", ""]
    word = "Healthy" if healthy.get("status") == "True" else "Unhealthy"
    return [name_of(obj), word, healthy.get("message") or "", healthy.get("error") or ""]


def _resource_quota(obj: ReadOnlyObject, since: Since) -> list[Any]:
    hard, used = at(obj, "status", "hard", default={}), at(obj, "status", "used", default={})
    texts = {name: f"{name}: {used.get(name, '0')}/{hard[name]}" for name in sorted(hard)}
    limits = [text for name, text in texts.items() if name.startswith("limits.")]
    requests = [text for name, text in texts.items() if not name.startswith("limits.")]
    return [name_of(obj), ", ".join(requests), ", ".join(limits), age_of(obj, since)]


_REQUEST_TEXT: Final = "Request represents a minimum amount of cpu/memory that a container may consume."
_LIMIT_TEXT: Final = (
    "Limits control the maximum amount of cpu/memory that a container may use independent of contention on the node."
)

PRINTERS: Final[Mapping[str, Printer]] = {
    **node.PRINTERS,
    **persistentvolume.PRINTERS,
    **persistentvolumeclaim.PRINTERS,
    **pod.PRINTERS,
    **podtemplate.PRINTERS,
    **service.PRINTERS,
    "replicationcontrollers": Printer(
        (
            NAME,
            field("Desired", "core.v1.ReplicationControllerSpec.replicas", "integer"),
            field("Current", "core.v1.ReplicationControllerStatus.replicas", "integer"),
            field("Ready", "core.v1.ReplicationControllerStatus.readyReplicas", "integer"),
            AGE,
            CONTAINERS,
            IMAGES,
            wide_field("Selector", "core.v1.ReplicationControllerSpec.selector"),
        ),
        _replication_controller,
    ),
    "endpoints": Printer((NAME, field("Endpoints", "core.v1.Endpoints.subsets"), AGE), _endpoints),
    "namespaces": Printer((NAME, Column("Status", text="The status of the namespace"), AGE), _namespace),
    "secrets": Printer(
        (NAME, field("Type", "core.v1.Secret.type"), field("Data", "core.v1.Secret.data"), AGE), _secret
    ),
    "configmaps": Printer((NAME, field("Data", "core.v1.ConfigMap.data"), AGE), _config_map),
    "serviceaccounts": Printer((NAME, AGE), _service_account),
    "componentstatuses": Printer(
        (
            NAME,
            Column("Status", text="Status of the component conditions"),
            Column("Message", text="Message of the component conditions"),
            Column("Error", text="Error of the component conditions"),
        ),
        _component_status,
    ),
    "resourcequotas": Printer(
        (NAME, Column("Request", text=_REQUEST_TEXT), Column("Limit", text=_LIMIT_TEXT), AGE), _resource_quota
    ),
}
