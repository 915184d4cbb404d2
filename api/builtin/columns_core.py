"""How the kinds of the core group are shown, except pods, nodes and volumes: columns, and what stands in them.

Source: Kubernetes' ``pkg/printers/internalversion``. Each function gives the cells of one object in the order of the
columns named beside it in PRINTERS.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kubechronicle.api.builtin.cell_text import Since, condition, containers_text, joined, labels_text
from kubechronicle.api.builtin.columns_pods import POD
from kubechronicle.api.builtin.printer import (
    AGE,
    CONTAINERS,
    IMAGES,
    NAME,
    Column,
    Object,
    Printer,
    age_of,
    at,
    field,
    name_of,
    wide_field,
)

ENDPOINTS_SHOWN: Final = 3


def _pod_template(obj: Object, since: Since) -> list[Any]:
    template = obj.get("template") or {}
    names, images = containers_text(at(template, "spec", "containers"))
    return [name_of(obj), names, images, labels_text(at(template, "metadata", "labels"))]


def _replication_controller(obj: Object, since: Since) -> list[Any]:
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


# -- services and endpoints -------------------------------------------------------------------------------------------


def ingress_points(status: Object | None) -> str:
    """Return the addresses of a load balancer, sorted and without repetitions."""
    points = at(status, "loadBalancer", "ingress", default=())
    found = {point.get("ip") or point.get("hostname") or "" for point in points}
    return ",".join(sorted(found - {""}))


def _external_ip(obj: Object, spec: Object) -> str:
    kind = spec.get("type")
    listed = spec.get("externalIPs") or []
    if kind in ("ClusterIP", "NodePort"):
        return ",".join(listed) or "<none>"
    if kind == "LoadBalancer":
        points = ingress_points(obj.get("status"))
        return ",".join([*([points] if points else []), *listed]) or "<pending>"
    if kind == "ExternalName":
        name: str = spec.get("externalName") or ""
        return name
    return "<unknown>"


def _port(port: Object) -> str:
    outer = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port.get('port')}{outer}/{port.get('protocol') or 'TCP'}"


def _service(obj: Object, since: Since) -> list[Any]:
    spec = obj.get("spec") or {}
    addresses = spec.get("clusterIPs") or [spec.get("clusterIP")]
    return [
        name_of(obj),
        spec.get("type") or "",
        addresses[0] or "<none>",
        _external_ip(obj, spec),
        ",".join(map(_port, spec.get("ports") or ())) or "<none>",
        age_of(obj, since),
        labels_text(spec.get("selector")),
    ]


def _host_port(ip: str, port: int) -> str:
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


def _endpoints_text(subsets: Iterable[Object]) -> str:
    shown: list[str] = []
    total = 0
    for subset in subsets:
        addresses = [address.get("ip", "") for address in subset.get("addresses") or ()]
        ports = subset.get("ports")
        # Headless services may have no ports: each address stands alone.
        if ports:
            listed = [_host_port(ip, port.get("port", 0)) for port in ports for ip in addresses[:ENDPOINTS_SHOWN]]
        else:
            listed = addresses
        total += len(addresses) * max(1, len(ports or ()))
        shown += listed[: ENDPOINTS_SHOWN - len(shown)]
    return joined(shown, ENDPOINTS_SHOWN, total=total)


def _endpoints(obj: Object, since: Since) -> list[Any]:
    subsets = obj.get("subsets")
    return [name_of(obj), _endpoints_text(subsets) if subsets else "<none>", age_of(obj, since)]


# -- events and the small kinds ---------------------------------------------------------------------------------------


def _event_object(involved: Object) -> str:
    kind = (involved.get("kind") or "").lower()
    name = involved.get("name")
    return f"{kind}/{name}" if name else kind


def _event_source(obj: Object) -> str:
    source = obj.get("source") or {}
    component = source.get("component") or obj.get("reportingComponent") or ""
    instance = source.get("host") or obj.get("reportingInstance") or ""
    return f"{component}, {instance}" if instance else component


def _event(obj: Object, since: Since) -> list[Any]:
    involved = obj.get("involvedObject") or {}
    first = since(obj.get("firstTimestamp") or obj.get("eventTime"))
    last_seen = obj.get("lastTimestamp")
    last, count = since(last_seen) if last_seen else first, obj.get("count") or 1
    series = obj.get("series")
    if series is not None:
        last, count = since(series.get("lastObservedTime")), series.get("count") or 0
    return [
        last,
        obj.get("type") or "",
        obj.get("reason") or "",
        _event_object(involved),
        involved.get("fieldPath") or "",
        _event_source(obj),
        (obj.get("message") or "").strip(),
        first,
        count,
        name_of(obj),
    ]


def _namespace(obj: Object, since: Since) -> list[Any]:
    return [name_of(obj), at(obj, "status", "phase", default=""), age_of(obj, since)]


def _secret(obj: Object, since: Since) -> list[Any]:
    return [name_of(obj), obj.get("type") or "", len(obj.get("data") or ()), age_of(obj, since)]


def _config_map(obj: Object, since: Since) -> list[Any]:
    return [name_of(obj), len(obj.get("data") or ()) + len(obj.get("binaryData") or ()), age_of(obj, since)]


def _service_account(obj: Object, since: Since) -> list[Any]:
    return [name_of(obj), len(obj.get("secrets") or ()), age_of(obj, since)]


def _component_status(obj: Object, since: Since) -> list[Any]:
    healthy = condition(obj.get("conditions"), "Healthy")
    if healthy is None:
        return [name_of(obj), "Unknown", "", ""]
    word = "Healthy" if healthy.get("status") == "True" else "Unhealthy"
    return [name_of(obj), word, healthy.get("message") or "", healthy.get("error") or ""]


def _resource_quota(obj: Object, since: Since) -> list[Any]:
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
    "pods": POD,
    "podtemplates": Printer(
        (
            NAME,
            Column("Containers", text=CONTAINERS.text),
            Column("Images", text=IMAGES.text),
            Column("Pod Labels", text="The labels for the pod template."),
        ),
        _pod_template,
    ),
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
    "services": Printer(
        (
            NAME,
            field("Type", "core.v1.ServiceSpec.type"),
            field("Cluster-IP", "core.v1.ServiceSpec.clusterIP"),
            field("External-IP", "core.v1.ServiceSpec.externalIPs"),
            field("Port(s)", "core.v1.ServiceSpec.ports"),
            AGE,
            wide_field("Selector", "core.v1.ServiceSpec.selector"),
        ),
        _service,
    ),
    "endpoints": Printer((NAME, field("Endpoints", "core.v1.Endpoints.subsets"), AGE), _endpoints),
    "events": Printer(
        (
            field("Last Seen", "core.v1.Event.lastTimestamp"),
            field("Type", "core.v1.Event.type"),
            field("Reason", "core.v1.Event.reason"),
            field("Object", "core.v1.Event.involvedObject"),
            wide_field("Subobject", "core.v1.ObjectReference.fieldPath"),
            wide_field("Source", "core.v1.Event.source"),
            field("Message", "core.v1.Event.message"),
            wide_field("First Seen", "core.v1.Event.firstTimestamp"),
            wide_field("Count", "core.v1.Event.count"),
            Column("Name", field="ObjectMeta.name", priority=1, format="name"),
        ),
        _event,
    ),
    "namespaces": Printer((NAME, Column("Status", text="The status of the namespace"), AGE), _namespace),
    "secrets": Printer(
        (NAME, field("Type", "core.v1.Secret.type"), field("Data", "core.v1.Secret.data"), AGE), _secret
    ),
    "configmaps": Printer((NAME, field("Data", "core.v1.ConfigMap.data"), AGE), _config_map),
    "serviceaccounts": Printer((NAME, field("Secrets", "core.v1.ServiceAccount.secrets"), AGE), _service_account),
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
"""Storage resource -> printer."""
