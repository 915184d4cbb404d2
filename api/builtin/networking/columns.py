"""Table columns of the kinds of networking.k8s.io. | Source: Kubernetes' ``pkg/printers/internalversion``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since, selector_text
from kubechronicle.api.builtin.common.printer import AGE, NAME, Column, Printer, age_of, at, field, name_of
from kubechronicle.api.builtin.core.service.service import ingress_points
from kubechronicle.api.values.objects import ReadOnlyObject

LIST_SHOWN: Final = 3


def _hosts(rules: Sequence[ReadOnlyObject]) -> str:
    shown = [rule["host"] for rule in rules if rule.get("host")][:LIST_SHOWN]
    if not shown:
        return "*"
    more = len(rules) - LIST_SHOWN
    # As in Kubernetes, rules without a host are counted as more only if three hosts are shown.
    return ",".join(shown) + (f" + {more} more..." if more > 0 and len(shown) == LIST_SHOWN else "")


def _ingress(obj: ReadOnlyObject, since: Since) -> list[Any]:
    spec = obj.get("spec") or {}
    return [
        name_of(obj),
        spec.get("ingressClassName") or "<none>",
        _hosts(spec.get("rules") or ()),
        ingress_points(obj.get("status")),
        "80, 443" if spec.get("tls") else "80",
        age_of(obj, since),
    ]


def _ingress_class(obj: ReadOnlyObject, since: Since) -> list[Any]:
    parameters = at(obj, "spec", "parameters")
    text = "<none>"
    if parameters is not None:
        group = parameters.get("apiGroup")
        text = f"{parameters.get('kind', '')}{f'.{group}' if group else ''}/{parameters.get('name', '')}"
    return [name_of(obj), at(obj, "spec", "controller", default=""), text, age_of(obj, since)]


def _network_policy(obj: ReadOnlyObject, since: Since) -> list[Any]:
    return [name_of(obj), selector_text(at(obj, "spec", "podSelector")), age_of(obj, since)]


def _service_cidr(obj: ReadOnlyObject, since: Since) -> list[Any]:
    return [name_of(obj), ",".join(at(obj, "spec", "cidrs", default=())), age_of(obj, since)]


def _ip_address(obj: ReadOnlyObject, since: Since) -> list[Any]:
    parent = at(obj, "spec", "parentRef")
    text = "<none>"
    if parent is not None:
        resource = ".".join(filter(None, (parent.get("resource"), parent.get("group")))).lower()
        text = "/".join(filter(None, (resource, parent.get("namespace"), parent.get("name"))))
    # Kubernetes adds the age, although the table has no column for it.
    return [name_of(obj), text, age_of(obj, since)]


PRINTERS: Final[Mapping[str, Printer]] = {
    "ingresses.networking.k8s.io": Printer(
        (
            NAME,
            Column(
                "Class",
                text="The name of the IngressClass resource that should be used for additional configuration",
            ),
            Column("Hosts", text="Hosts that incoming requests are matched against before the ingress rule"),
            Column("Address", text="Address is a list containing ingress points for the load-balancer"),
            Column("Ports", text="Ports of TLS configurations that open"),
            AGE,
        ),
        _ingress,
    ),
    "ingressclasses.networking.k8s.io": Printer(
        (
            NAME,
            Column("Controller", text="Controller that is responsible for handling this class"),
            Column("Parameters", text="A reference to a resource with additional parameters"),
            AGE,
        ),
        _ingress_class,
    ),
    "networkpolicies.networking.k8s.io": Printer(
        (NAME, field("Pod-Selector", "networking.v1.NetworkPolicySpec.podSelector"), AGE), _network_policy
    ),
    "servicecidrs.networking.k8s.io": Printer(
        (NAME, field("CIDRs", "networking.v1.ServiceCIDRSpec.cidrs"), AGE), _service_cidr
    ),
    "ipaddresses.networking.k8s.io": Printer(
        (NAME, field("ParentRef", "networking.v1.IPAddressSpec.parentRef")), _ip_address
    ),
}
