"""NetworkPolicy: the peers that pods may talk to.

Source: Kubernetes' ``registry/networking/networkpolicy``, ``apis/networking`` and ``pkg/printers/internalversion``.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since, selector_text
from kubechronicle.api.builtin.common.checks import label_selector, one_of_if_set, port_number, wrong
from kubechronicle.api.builtin.common.kind import BuiltinKind
from kubechronicle.api.builtin.common.network_values import cidr_warnings, legacy_cidr, parse_range, staying_valid
from kubechronicle.api.builtin.common.printer import AGE, NAME, Printer, age_of, at, field_column, name_of
from kubechronicle.api.errors.field_errors import Cause, forbidden, invalid_value, required
from kubechronicle.api.strategy.strategy import Check, Strategy
from kubechronicle.api.values import names
from kubechronicle.api.values.objects import Object, ReadOnlyObject

# -- defaults ---------------------------------------------------------------------------------------------------------


def default_network_policy(obj: Object) -> None:
    """Set the policy types: Ingress, and Egress if the policy has egress rules."""
    spec = obj["spec"]
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]


# -- validation -------------------------------------------------------------------------------------------------------

POLICY_TYPES: Final = ("Ingress", "Egress")


def validate_network_policy(obj: Object, *, strict: bool = True) -> list[Cause]:
    """Check the pod selector, peers and ports of a NetworkPolicy."""
    return _policy(obj, staying_valid((), strict=strict))


def validate_network_policy_update(new: Object, old: Object, *, strict: bool = True) -> list[Cause]:
    """Check a changed NetworkPolicy; CIDRs of the old one stay valid."""
    held = {text for block, _ in _ip_blocks(old) for text in (block.get("cidr", ""), *(block.get("except") or ()))}
    return _policy(new, staying_valid(held, strict=strict))


def _ip_blocks(obj: Object) -> Iterator[tuple[Object, str]]:
    for direction, peers in (("ingress", "from"), ("egress", "to")):
        for index, rule in enumerate(obj["spec"].get(direction) or ()):
            for position, peer in enumerate(rule.get(peers) or ()):
                if peer.get("ipBlock") is not None:
                    yield peer["ipBlock"], f"spec.{direction}[{index}].{peers}[{position}].ipBlock"


def network_policy_warnings(new: Object, old: Object | None) -> list[str]:
    """Return warnings about CIDRs that are ambiguous or not in canonical form."""
    warnings: list[str] = []
    for block, field in _ip_blocks(new):
        warnings += cidr_warnings(block.get("cidr", ""), f"{field}.cidr")
        for index, text in enumerate(block.get("except") or ()):
            warnings += cidr_warnings(text, f"{field}.except[{index}]")
    return warnings


def _policy(obj: Object, held: Container[str]) -> list[Cause]:
    spec = obj["spec"]
    causes = label_selector(spec.get("podSelector"), "spec.podSelector")
    for direction, peers in (("ingress", "from"), ("egress", "to")):
        for index, rule in enumerate(spec.get(direction) or ()):
            field = f"spec.{direction}[{index}]"
            for position, port in enumerate(rule.get("ports") or ()):
                causes += _policy_port(port, f"{field}.ports[{position}]")
            for position, peer in enumerate(rule.get(peers) or ()):
                causes += _peer(peer, f"{field}.{peers}[{position}]", held)
    types = spec.get("policyTypes") or []
    if len(types) > len(POLICY_TYPES):
        return [*causes, invalid_value("spec.policyTypes", types, "may not specify more than two policyTypes")]
    for index, kind in enumerate(types):
        causes += one_of_if_set(kind, POLICY_TYPES, f"spec.policyTypes[{index}]")
    return causes


def _policy_port(port: Object, field: str) -> list[Cause]:
    causes = one_of_if_set(port.get("protocol"), ("TCP", "UDP", "SCTP"), f"{field}.protocol")
    number, end = port.get("port"), port.get("endPort")
    if isinstance(number, int):
        causes += port_number(number, f"{field}.port")
        if end is not None:
            if end < number:
                causes.append(invalid_value(f"{field}.endPort", end, "must be greater than or equal to `port`"))
            causes += port_number(end, f"{field}.endPort")
        return causes
    if end is not None:
        why = "not specified" if number is None else "non-numeric"
        causes.append(invalid_value(f"{field}.endPort", end, f"may not be specified when `port` is {why}"))
    return causes if number is None else causes + wrong(f"{field}.port", number, names.port_name(number))


def _peer(peer: Object, field: str, held: Container[str]) -> list[Cause]:
    causes: list[Cause] = []
    given = [name for name in ("podSelector", "namespaceSelector", "ipBlock") if peer.get(name) is not None]
    for name in given:
        if name == "ipBlock":
            causes += _ip_block(peer[name], f"{field}.ipBlock", held)
        else:
            causes += label_selector(peer[name], f"{field}.{name}")
    if not given:
        causes.append(required(field, "must specify a peer"))
    elif len(given) > 1 and "ipBlock" in given:
        causes.append(forbidden(field, "may not specify both ipBlock and another peer"))
    return causes


def _ip_block(block: Object, field: str, held: Container[str]) -> list[Cause]:
    text = block.get("cidr", "")
    if not text:
        return []
    causes, network = legacy_cidr(text, f"{field}.cidr", held), parse_range(text)
    if network is None:
        return causes
    for index, value in enumerate(block.get("except") or ()):
        path, inner = f"{field}.except[{index}]", parse_range(value)
        causes += legacy_cidr(value, path, held)
        if inner is None:
            continue
        within = inner.version == network.version and inner.network_address in network
        if not within or network.prefixlen >= inner.prefixlen:
            causes.append(invalid_value(path, value, "must be a strict subset of `cidr`"))
    return causes


# -- table columns ----------------------------------------------------------------------------------------------------


def _cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    return [name_of(obj), selector_text(at(obj, "spec", "podSelector")), age_of(obj, since)]


# -- the kind ---------------------------------------------------------------------------------------------------------

KIND: Final = BuiltinKind(
    resource="networkpolicies.networking.k8s.io",
    strategy=Strategy(
        update_checks=(Check.METADATA_CHANGE, Check.CHANGE),
        status=False,
        generation=True,
        generation_counts_empties=True,
        validate=validate_network_policy,
        validate_update=validate_network_policy_update,
        warnings=network_policy_warnings,
    ),
    default_values={"networking.v1.NetworkPolicyPort": {"protocol": "TCP"}},
    default_functions={"networking.v1.NetworkPolicy": default_network_policy},
    printer=Printer((NAME, field_column("Pod-Selector", "networking.v1.NetworkPolicySpec.podSelector"), AGE), _cells),
)
