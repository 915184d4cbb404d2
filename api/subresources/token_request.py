"""TokenRequest: its validation, and the claims of a service account's token (authentication.k8s.io/v1).

Pure; after pkg/registry/core/serviceaccount/storage of kube-apiserver, with its rejections. A token may be bound to one
object, and is invalid after that object's deletion:

    boundObjectRef v1 Pod       runs as this service account; the token then names the pod's node, too
    boundObjectRef v1 Secret    in the same namespace
    boundObjectRef v1 Node      any
    boundObjectRef admissionregistration.k8s.io/v1 ValidatingWebhookConfiguration or MutatingWebhookConfiguration
                                any, with the gate APIServerWebhookAuthenticationToken (KEP-6060). The token is for one
                                webhook, its audience, and attests an API group whose reviews the bearer may send.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kubechronicle.api.errors import status
from kubechronicle.api.errors.field_errors import Cause, go_quote, invalid_value, not_supported
from kubechronicle.api.meta import metadata
from kubechronicle.api.registry.registry import ResourceType, body_type
from kubechronicle.api.values import names
from kubechronicle.api.values.objects import Object

GROUP: Final = "authentication.k8s.io"
DEFAULT_SECONDS: Final = 3600
MIN_SECONDS: Final = 10 * 60
MAX_SECONDS: Final = 2**32
POD_SECONDS: Final = 3607
"""The default lifetime in a pod's projected token request."""
EXTENDED_SECONDS: Final = 365 * 24 * 3600
"""Seconds that such a token is valid, for programs that read it only once. It also has the time of its next reading."""

BINDABLE: Final[Mapping[str, str]] = {"Pod": "pods", "Secret": "secrets", "Node": "nodes"}
"""Kinds of the core group for boundObjectRef, with their resource."""


HOOKS: Final = "admissionregistration.k8s.io"
UIDS_GATE: Final = "TokenRequestServiceAccountUIDValidation"
HOOKS_GATE: Final = "APIServerWebhookAuthenticationToken"
WEBHOOKS: Final[Mapping[str, str]] = {
    kind: f"{kind.lower()}s" for kind in ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration")
}
"""Kinds of webhook configurations, with their resource."""
REVIEW_GROUPS: Final = "admissionReviewAPIGroups"
"""The one attestation: the API group whose reviews a client sends to the webhook; ``*`` for all groups."""
MAX_HOOK_SECONDS: Final = 10 * 60


def token_type(accounts: ResourceType) -> ResourceType:
    """Return the type of the service accounts' token subresource, for decoding its bodies."""
    return body_type(accounts, group=GROUP, version="v1", kind="TokenRequest")


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundObject:
    """The object that a token is bound to.

    ``kind``: "" for none.
    ``pod``, ``secret``, ``node``, ``hook``: (name, uid) for the claims.
    """

    kind: str = ""
    pod: tuple[str, str] | None = None
    secret: tuple[str, str] | None = None
    node: tuple[str, str] | None = None
    hook: tuple[str, str] | None = None


def named(obj: Object) -> Object:
    """Return the part of an account, or of an object to bind to, that names it and its account and node."""
    meta = {name: obj["metadata"][name] for name in ("name", "namespace", "uid") if name in obj["metadata"]}
    spec = obj.get("spec") or {}
    return {"metadata": meta, "spec": {name: spec.get(name, "") for name in ("serviceAccountName", "nodeName")}}


def match_account(sent: Mapping[str, Any], name: str) -> None:
    """Reject (422) a request that names a service account other than the URL's."""
    given = sent["metadata"].get("name", "")
    if given and given != name:
        cause = invalid_value("metadata.name", given, "must match the service account name if specified")
        raise status.invalid(GROUP, "TokenRequest", name, [cause])


def match_uid(sent: Mapping[str, Any], account: Mapping[str, Any], *, strict: bool) -> str:
    """Return how the uid of a request differs from that of its service account, or "". 409 if it must not (strict)."""
    given, uid = sent["metadata"].get("uid", ""), account["metadata"]["uid"]
    if not given or given == uid:
        return ""
    why = f"the UID in the token request ({given}) does not match the UID of the service account ({uid})"
    if strict:
        raise status.conflict(f"TokenRequest.{GROUP}", account["metadata"]["name"], why)
    return why


def complete(asked: Object, account: Mapping[str, Any], *, audiences: Sequence[str], now: str) -> None:
    """Complete a request of an account, in place, before validating admission sees it. 422: its lifetime is invalid.

    ``audiences``: those of the server. ``now``: the time of the request.
    """
    spec, meta = asked["spec"], asked["metadata"]
    spec["audiences"] = spec.get("audiences") or list(audiences)
    identity = {name: meta.get(name) or account["metadata"][name] for name in ("name", "namespace", "uid")}
    rest = {name: value for name, value in meta.items() if name not in identity}
    asked["metadata"] = {**identity, **rest, "creationTimestamp": now}
    validate(spec)


def validate(spec: Mapping[str, Any]) -> None:
    """Reject (422) a lifetime that is too short or too long, and attestations that no webhook can check."""
    seconds, field = spec.get("expirationSeconds") or 0, "spec.expirationSeconds"
    causes: list[Cause] = []
    if seconds < MIN_SECONDS:
        causes.append(invalid_value(field, seconds, "may not specify a duration less than 10 minutes"))
    if seconds > MAX_SECONDS:
        causes.append(invalid_value(field, seconds, "may not specify a duration larger than 2^32 seconds"))
    attestations, path = spec.get("attestations"), "spec.attestations"
    if is_hook(spec.get("boundObjectRef") or {}):
        if len(spec["audiences"]) != 1:
            text = "must be length 1 when bound to a webhook config"
            causes.append(invalid_value("spec.audiences", spec["audiences"], text))
        causes += _attested(attestations, path)
    elif attestations:
        text = "attestations may only be specified with a webhook bound object reference"
        causes = [invalid_value(path, dict(sorted(attestations.items())), text)]
    if causes:
        raise status.invalid(GROUP, "TokenRequest", "", causes)


def _attested(attestations: Mapping[str, Sequence[str]] | None, path: str) -> list[Cause]:
    if attestations is None or len(attestations) != 1:
        text = f"webhook bound requests require exactly one {REVIEW_GROUPS} attestation"
        return [invalid_value(path, attestations and dict(sorted(attestations.items())), text)]
    ((key, values),) = attestations.items()
    path = f"{path}[{key}]"
    if key != REVIEW_GROUPS:
        return [not_supported(path, key, (REVIEW_GROUPS,))]
    if values is None or len(values) != 1:
        return [invalid_value(path, values, "must specify a single value")]
    (group,) = values
    if not group:
        return [invalid_value(f"{path}[0]", group, "may not be an empty string")]
    problems = [] if group == "*" else names.dns_subdomain(group)
    return [invalid_value(f"{path}[0]", group, f"must specify a valid API Group: {each}") for each in problems]


def is_hook(reference: Mapping[str, Any]) -> bool:
    """Tell whether a reference is to the configuration of a webhook."""
    return reference.get("kind") in WEBHOOKS and reference.get("apiVersion") == f"{HOOKS}/v1"


def bind_to_hook(spec: Object, *, ours: Sequence[str], enabled: bool) -> None:
    """Shorten the lifetime of a token for a webhook. 400: the gate is off, or this server is its audience."""
    if not enabled:
        shown = f"{HOOKS}/v1, Kind={spec['boundObjectRef']['kind']}"
        raise status.bad_request(f"cannot bind token to object of type {shown} (feature gate {HOOKS_GATE} is disabled)")
    if not set(ours).isdisjoint(spec["audiences"]):
        raise status.bad_request("api server audiences are invalid for webhook token requests")
    spec["expirationSeconds"] = min(spec["expirationSeconds"], MAX_HOOK_SECONDS)


def asks_for_reviews(configuration: Object, *, audience: str, group: str, now: str) -> Object | None:
    """Return the metadata of a configuration that has a webhook at this audience, with rules for the group, else None.

    None for one whose deletion is due. A rule for all groups is one for each. ``*`` is the group of kube-apiserver
    itself, which needs no webhook.
    """
    due = configuration["metadata"].get("deletionTimestamp")
    if due and due <= now:
        return None
    found = group == "*" or any(
        audience in _audiences(hook.get("clientConfig") or {})
        and any({"*", group} & set(rule.get("apiGroups") or ()) for rule in hook.get("rules") or ())
        for hook in configuration.get("webhooks") or ()
    )
    return named(configuration) if found else None


def _audiences(client: Mapping[str, Any]) -> list[str]:
    """Return the audiences of a webhook: its URL, or that of its Service."""
    service, url = client.get("service"), client.get("url")
    found = [] if url is None else [url]
    if service is not None:
        path, host = service.get("path") or "/", f"{service.get('name', '')}.{service.get('namespace', '')}.svc"
        found.append(f"https://{host}:{service.get('port') or 443}{'' if path.startswith('/') else '/'}{path}")
    return found


def bound_kind(reference: Mapping[str, Any]) -> str:
    """Return the kind of a reference, one of BINDABLE. 400 for another kind, and for an invalid name."""
    group, version, kind = _group_version_kind(reference)
    if group or kind not in BINDABLE:
        raise status.bad_request(f"cannot bind token to object of type {group}/{version}, Kind={kind}")
    metadata.match_name_syntax(reference.get("name", ""))
    return kind


def _group_version_kind(reference: Mapping[str, Any]) -> tuple[str, str, str]:
    api_version, kind = reference.get("apiVersion", ""), reference.get("kind", "")
    if api_version.count("/") > 1:
        return "", "", kind
    group, _, version = api_version.rpartition("/")
    return group, version, kind


def match_bound(reference: Mapping[str, Any], kind: str, found: Mapping[str, Any], account_name: str) -> None:
    """Reject a pod of another service account (400), and an object with another uid (409)."""
    if kind == "Pod" and (found.get("spec") or {}).get("serviceAccountName", "") != account_name:
        raise status.bad_request(
            f"cannot bind token for serviceaccount {go_quote(account_name)} to pod running with different "
            "serviceaccount name."
        )
    given = reference.get("uid", "")
    if given and given != found["metadata"]["uid"]:
        why = (
            f"the UID in the bound object reference ({given}) does not match the UID in record. The object might have "
            "been deleted and then recreated"
        )
        raise status.conflict(f"{kind}.{HOOKS}" if kind in WEBHOOKS else kind, reference["name"], why)


def lifetime(
    spec: Mapping[str, Any], bound: BoundObject, *, ours: Sequence[str], extended: int | None = EXTENDED_SECONDS
) -> tuple[int, int]:
    """Return (lifetime in seconds, seconds until the expected next reading; 0 for none).

    ``ours``: this server's audiences.
    ``extended``: the lifetime of tokens for these audiences that pods request by default; None: as requested.
    """
    seconds: int = spec["expirationSeconds"]
    if extended is not None and bound.kind == "Pod" and seconds == POD_SECONDS and set(spec["audiences"]) <= set(ours):
        return extended, seconds
    return seconds, 0


def claims(
    account: Mapping[str, Any],
    bound: BoundObject,
    *,
    issuer: str,
    audiences: Sequence[str],
    token_id: str,
    now: int,
    lasts: int,
    warn_after: int,
    attestations: Mapping[str, Sequence[str]] | None = None,
) -> Object:
    """Return the claims. ``now`` in seconds since the epoch; ``lasts`` and ``warn_after`` from ``lifetime``."""
    meta = account["metadata"]
    private: Object = {"namespace": meta["namespace"], "serviceaccount": _named((meta["name"], meta["uid"]))}
    for field in ("pod", "secret", "node"):
        named: tuple[str, str] | None = getattr(bound, field)
        if named is not None:
            private[field] = _named(named)
    if bound.hook is not None:
        private[bound.kind.lower()] = _named(bound.hook)
        private["attestations"] = attestations
    if warn_after:
        private["warnafter"] = now + warn_after
    return {
        "iss": issuer,
        "sub": f"system:serviceaccount:{meta['namespace']}:{meta['name']}",
        "aud": list(audiences),
        "exp": now + lasts,
        "nbf": now,
        "iat": now,
        "jti": token_id,
        "kubernetes.io": private,
    }


def _named(named: tuple[str, str]) -> Object:
    return {field: value for field, value in zip(("name", "uid"), named, strict=True) if value}
