"""AuthorizationConfiguration (apiserver.config.k8s.io v1, v1beta1, v1alpha1): the authorizers and their order.

--authorization-mode is turned into the same records. The rules, field paths and messages are those of
k8s.io/apiserver/pkg/apis/apiserver/validation and pkg/kubeapiserver/authorizer. All versions have the same fields.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

from kubechronicle.api.configuration import files
from kubechronicle.api.configuration.files import ConfigFileError
from kubechronicle.api.configuration.structuring import Duration, FieldKey, ZeroIsDefault
from kubechronicle.api.errors.field_errors import (
    Cause,
    Path,
    aggregate,
    duplicate,
    invalid_value,
    not_supported,
    required,
    too_many,
)
from kubechronicle.api.values import durations, names

ABAC, ALWAYS_ALLOW, ALWAYS_DENY, NODE, RBAC, WEBHOOK = "ABAC", "AlwaysAllow", "AlwaysDeny", "Node", "RBAC", "Webhook"
TYPES: Final = (ABAC, ALWAYS_ALLOW, ALWAYS_DENY, NODE, RBAC, WEBHOOK)

VERSIONS: Final = ("v1", "v1beta1", "v1alpha1")
REVIEW_VERSIONS: Final = ("v1", "v1beta1")
MATCHED_VERSIONS: Final = ("v1",)
NO_OPINION, DENY = "NoOpinion", "Deny"
KUBECONFIG, IN_CLUSTER = "KubeConfigFile", "InClusterConfig"
# The webhook of --authorization-mode=Webhook.
DEFAULT_NAME: Final = "default"

MAX_CONDITIONS: Final = 64
NO_TIMEOUT: Final = Duration(0)
MAX_TIMEOUT: Final = Duration(30 * durations.SECOND)
AUTHORIZED_TTL, UNAUTHORIZED_TTL = Duration(300 * durations.SECOND), Duration(30 * durations.SECOND)


class AuthorizationConfigurationError(ValueError):
    """The configuration can't be used. The message is one line for the operator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookConnectionInfo:
    """The server to ask. ``kube_config_file`` None: missing."""

    type: str = ""
    kube_config_file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookMatchCondition:
    """An expression that must be true of a request for the webhook to be asked."""

    expression: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookConfiguration:
    """A webhook, with the fields of Kubernetes' type of the same name."""

    authorized_ttl: Annotated[Duration, FieldKey("authorizedTTL"), ZeroIsDefault] = AUTHORIZED_TTL
    cache_authorized_requests: bool = True
    unauthorized_ttl: Annotated[Duration, FieldKey("unauthorizedTTL"), ZeroIsDefault] = UNAUTHORIZED_TTL
    cache_unauthorized_requests: bool = True
    timeout: Duration = NO_TIMEOUT
    subject_access_review_version: str = ""
    match_condition_subject_access_review_version: str = ""
    failure_policy: str = ""
    connection_info: WebhookConnectionInfo = WebhookConnectionInfo()
    match_conditions: tuple[WebhookMatchCondition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizerConfiguration:
    """One authorizer. ``webhook``: only for the type Webhook."""

    type: str = ""
    name: str = ""
    webhook: WebhookConfiguration | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationConfiguration:
    """The file."""

    authorizers: tuple[AuthorizerConfiguration, ...] = ()


Configured = tuple[AuthorizerConfiguration, ...]
"""All authorizers, in order."""


def of_modes(modes: Sequence[str], webhook: WebhookConfiguration | None = None) -> Configured:
    """Return the authorizers of --authorization-mode, with the webhook of --authorization-webhook-*."""
    return tuple(
        AuthorizerConfiguration(type=mode, name=DEFAULT_NAME, webhook=webhook)
        if mode == WEBHOOK
        else AuthorizerConfiguration(type=mode, name=mode.lower())
        for mode in modes
    )


def load(data: bytes, *, kept: Collection[str] = ()) -> Configured:
    """Return the authorizers of a valid file. ``kept``: types it must contain. Raises ConfigurationError."""
    try:
        configured = parse(data)
    except ConfigFileError as error:
        text = one_line(str(error))
        raise AuthorizationConfigurationError(f"failed to load AuthorizationConfiguration from file: {text}") from None
    if causes := validate(configured):
        raise AuthorizationConfigurationError(aggregate(causes))
    problems = [
        f"expected name {each.type.lower()} for authorizer {each.type} instead of {each.name}"
        for each in configured
        if each.type != WEBHOOK and each.name != each.type.lower()
    ]
    missing = sorted(set(kept) - {each.type for each in configured})
    if missing:
        problems.append(f"missing required types: [{' '.join(missing)}]")
    if problems:
        raise AuthorizationConfigurationError(problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]")
    return configured


def one_line(text: str) -> str:
    """Join the lines of a text, without the lines in which the CEL compiler points at the error."""
    return " ".join(line.strip() for line in text.split("\n") if not line.startswith(" | "))


# -- the file ---------------------------------------------------------------------------------------------------------


def parse(data: bytes) -> Configured:
    """Return the authorizers of a file, with defaults. Raises ConfigFileError."""
    if not data:
        return ()
    return files.decode(data, AuthorizationConfiguration, VERSIONS).authorizers


# -- validation -------------------------------------------------------------------------------------------------------


def validate(authorizers: Configured) -> list[Cause]:
    """Return all errors, in the order of the file. Checks the kubeconfig files it names."""
    if not authorizers:
        return [required("authorizers", "at least one authorization mode must be defined")]
    causes: list[Cause] = []
    types: set[str] = set()
    seen: set[str] = set()
    for position, each in enumerate(authorizers):
        path = Path("authorizers").index(position)
        wrong_type = _wrong_type(each.type, types, path.child("type"))
        if wrong_type is not None:
            causes.append(wrong_type)
            continue
        types.add(each.type)
        causes += _wrong_name(each.name, seen, path.child("name"))
        seen.add(each.name)
        if each.type == WEBHOOK:
            if each.webhook is None:
                causes.append(required(path.child("webhook"), "required when type=Webhook"))
            else:
                causes += _wrong_webhook(each.webhook, path)
        elif each.webhook is not None:
            causes.append(invalid_value(path.child("webhook"), "non-null", "may only be specified when type=Webhook"))
    return causes


def _wrong_type(type_: str, types: Collection[str], path: Path) -> Cause | None:
    if not type_:
        return required(path)
    if type_ not in TYPES:
        return not_supported(path, type_, TYPES)
    return duplicate(path, type_) if type_ in types and type_ != WEBHOOK else None


def _wrong_name(name: str, seen: Collection[str], path: Path) -> Iterator[Cause]:
    if not name:
        yield required(path)
    elif name in seen:
        yield duplicate(path, name)
    elif problems := names.dns_subdomain(name):
        yield invalid_value(path, name, f"authorizer name is invalid: {', '.join(problems)}")


def _wrong_webhook(webhook: WebhookConfiguration, path: Path) -> Iterator[Cause]:
    timeout = webhook.timeout
    if not timeout:
        yield required(path.child("timeout"))
    elif not 0 < timeout <= MAX_TIMEOUT:
        yield invalid_value(path.child("timeout"), durations.text_of(timeout), "must be > 0s and <= 30s")
    for name, ttl in (("authorizedTTL", webhook.authorized_ttl), ("unauthorizedTTL", webhook.unauthorized_ttl)):
        if ttl < 0:
            yield invalid_value(path.child(name), durations.text_of(ttl), "must be > 0s")
    yield from _one_of(path.child("subjectAccessReviewVersion"), webhook.subject_access_review_version, REVIEW_VERSIONS)
    matched = path.child("matchConditionSubjectAccessReviewVersion")
    if matched_version := webhook.match_condition_subject_access_review_version:
        yield from _one_of(matched, matched_version, MATCHED_VERSIONS)
    elif webhook.match_conditions:
        yield required(matched, "required if match conditions are specified")
    yield from _one_of(path.child("failurePolicy"), webhook.failure_policy, (NO_OPINION, DENY))
    yield from _wrong_connection(webhook.connection_info, path.child("connectionInfo"))
    expressions = [condition.expression for condition in webhook.match_conditions]
    yield from _wrong_conditions(expressions, path.child("matchConditions"))


def _one_of(path: Path, value: str, choices: Sequence[str]) -> Iterator[Cause]:
    if not value:
        yield required(path)
    elif value not in choices:
        yield not_supported(path, value, choices)


def _wrong_connection(connection: WebhookConnectionInfo, path: Path) -> Iterator[Cause]:
    kind, file = connection.type, connection.kube_config_file
    field = path.child("kubeConfigFile")
    if not kind:
        yield required(path.child("type"))
    elif kind == IN_CLUSTER:
        if file is not None:
            yield invalid_value(field, file, "can only be set when type=KubeConfigFile")
        # It means the cluster's API server, which is this server.
        yield invalid_value(path.child("type"), kind, "an API server cannot ask itself; use KubeConfigFile")
    elif kind == KUBECONFIG:
        if not file:
            yield required(field)
        elif not os.path.isabs(file):
            yield invalid_value(field, file, "must be an absolute path")
        elif problem := _wrong_file(file):
            yield invalid_value(field, file, problem)
    else:
        yield not_supported(path.child("type"), {"Type": kind, "KubeConfigFile": file}, (IN_CLUSTER, KUBECONFIG))


def _wrong_file(file: str) -> str:
    try:
        status = os.stat(file)
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        return f"error loading file: stat {file}: {reason}"
    return "" if stat.S_ISREG(status.st_mode) else "must be a regular file"


def _wrong_conditions(conditions: Sequence[str], path: Path) -> Iterator[Cause]:
    if len(conditions) > MAX_CONDITIONS:
        yield too_many(path, len(conditions), MAX_CONDITIONS)
        return
    seen: set[str] = set()
    for position, expression in enumerate(conditions):
        field = path.index(position).child("expression")
        if not expression.strip():
            yield required(field)
        elif expression in seen:
            yield duplicate(field, expression)
        else:
            seen.add(expression)
            try:
                _compile()(expression)
            except ValueError as error:
                yield invalid_value(field, expression, one_line(str(error)))


def _compile() -> Callable[[str], object]:
    # Imported here: most servers have no conditions.
    from kubechronicle.http.authorization.match_conditions import compiled

    return compiled
