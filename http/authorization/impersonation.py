"""Impersonation: a request acts as another user (the Impersonate-* headers), if the requestor has the rights.

The constrained modes come first, then the legacy mode (KEP-5284). A mode applies to certain users. It requires a right
for the request itself and one for each part of the identity:

    mode             applies to                        rights, in authentication.k8s.io
    associated-node  the node of the requesting pod    impersonate-on:associated-node:VERB; impersonate:associated-node
    arbitrary-node   system:node:NAME                  impersonate-on:arbitrary-node:VERB;  impersonate:arbitrary-node
    serviceaccount   system:serviceaccount:NS:NAME     impersonate-on:serviceaccount:VERB;  impersonate:serviceaccount
    user-info        all other users                   impersonate-on:user-info:VERB;       impersonate:user-info
    legacy           all users                         impersonate, in the core group, for any request

The mode that last worked for the requestor is tried first. If no mode allows it, the 403 is that of the first mode
tried that applies.

Without the gate ConstrainedImpersonation there is only the legacy mode, with slightly other words and order.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Final

from kubechronicle.api.errors import status
from kubechronicle.api.errors.field_errors import go_quote
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.meta.request_info import RequestInfo
from kubechronicle.api.values import names
from kubechronicle.api.values.caches import kept_in_order
from kubechronicle.http.authentication.credentials import extra_fields
from kubechronicle.http.authentication.user import (
    ANONYMOUS,
    GROUP_AUTHENTICATED,
    GROUP_MASTERS,
    GROUP_UNAUTHENTICATED,
    User,
)
from kubechronicle.http.authorization.decision import AuthorizationChain, Decision, Verdict, forbidden
from kubechronicle.http.authorization.metrics import ImpersonationMetrics
from kubechronicle.http.authorization.node import GROUP_NODES, NODE_PREFIX
from kubechronicle.http.messages import Headers, utf8

GATE: Final = "ConstrainedImpersonation"
PREFIX: Final = "impersonate-"
USER, GROUP, UID, EXTRA = "impersonate-user", "impersonate-group", "impersonate-uid", "impersonate-extra-"

SERVICE_ACCOUNT: Final = "system:serviceaccount:"
GROUP_SERVICE_ACCOUNTS: Final = "system:serviceaccounts"
# Keys of ``extra`` with the node of a token's pod.
NODE_NAME_KEY: Final = "authentication.kubernetes.io/node-name"
NODE_KEYS_KEY: Final = "authentication.kubernetes.io/associated-node-keys"
AUTHENTICATION: Final = "authentication.k8s.io"
# From this many groups or extra values on, the right to all of them is checked first.
MANY: Final = 4
# Requestors whose last mode is remembered, and characters of the longest name of one.
REMEMBERED: Final = 10_000
LONGEST_REMEMBERED: Final = 512


def wanted_user(headers: Headers, constrained: bool = True) -> User | None:
    """Return the user that the headers name, None without such headers. Raises a 400 without a name."""
    name, uid = utf8(headers.get(USER)), utf8(headers.get(UID))
    groups = tuple(map(utf8, headers.get_all(GROUP)))
    extra = extra_fields(headers, EXTRA)
    if name:
        return User(name=name, uid=uid, groups=groups, extra=extra)
    if (uid or groups or extra) and not constrained:
        parts = [f"{{Group  {group}    }}" for group in groups]
        version = f"{AUTHENTICATION}/v1"
        parts += [f"{{UserExtra  {value}  {version}  {key}}}" for key, values in extra.items() for value in values]
        parts += [f"{{UID  {uid}  {version}  }}"] if uid else []
        raise status.bad_request(f"requested [{' '.join(parts)}] without impersonating a user")
    if uid or groups or extra:
        fields = f"Name:{_go(name)}, UID:{_go(uid)}, Groups:{_go_list(groups)}, Extra:{_go_map(extra)}"
        raise status.bad_request(f"requested &user.DefaultInfo{{{fields}}} without impersonating a user name")
    return None


def _go(text: str) -> str:
    return go_quote(text)


def _go_list(values: Sequence[str]) -> str:
    return "[]string{" + ", ".join(map(go_quote, values)) + "}" if values else "[]string(nil)"


def _go_map(extra: Mapping[str, Sequence[str]]) -> str:
    if not extra:
        return "map[string][]string(nil)"
    return "map[string][]string{" + ", ".join(f"{_go(key)}:{_go_list(extra[key])}" for key in sorted(extra)) + "}"


# -- modes ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Mode:
    """A mode. ``applies(wanted, requestor)``: whether it is for these users; ``name`` "": the legacy mode."""

    name: str
    applies: Callable[[User, User], bool]


def _only_named(wanted: User) -> bool:
    return not (wanted.uid or wanted.groups or wanted.extra)


def _node_name(user: str) -> str:
    name = user.removeprefix(NODE_PREFIX)
    return name if name != user and not names.dns_subdomain(name) else ""


def _account(user: str) -> tuple[str, str] | None:
    """Return namespace and name of the service account with this user name.

    Returns None for a name that no service account can have (SplitUsername of k8s.io/apiserver).
    """
    if not user.startswith(SERVICE_ACCOUNT):
        return None
    namespace, colon, name = user.removeprefix(SERVICE_ACCOUNT).partition(":")
    if not colon or names.dns_label(namespace) or names.dns_subdomain(name):
        return None
    return namespace, name


def _is_own_node(wanted: User, requestor: User) -> bool:
    node = _node_name(wanted.name)
    known = tuple(requestor.extra.get(NODE_NAME_KEY, ()))
    return bool(node) and _account(requestor.name) is not None and known == (node,)


def _is_special(wanted: User) -> bool:
    return bool(_node_name(wanted.name)) or _account(wanted.name) is not None


ASSOCIATED_NODE: Final = "associated-node"
LEGACY_LABEL: Final = "legacy"
LEGACY: Final = Mode("", lambda wanted, requestor: True)
MODES: Final = (
    Mode(ASSOCIATED_NODE, lambda wanted, requestor: _only_named(wanted) and _is_own_node(wanted, requestor)),
    Mode("arbitrary-node", lambda wanted, requestor: _only_named(wanted) and bool(_node_name(wanted.name))),
    Mode(
        "serviceaccount",
        lambda wanted, requestor: _only_named(wanted) and _account(wanted.name) is not None,
    ),
    Mode("user-info", lambda wanted, requestor: not _is_special(wanted)),
    LEGACY,
)


class LastModes:
    """The mode that last worked for each requestor, by name: it is likely to work again, so it is tried first.

    ``constrained``: False allows only the legacy mode.
    """

    def __init__(self, constrained: bool = True) -> None:
        self.constrained = constrained
        self._modes: OrderedDict[str, Mode] = kept_in_order("impersonators")

    def ordered(self, requestor: User) -> Sequence[Mode]:
        """Return all modes in the order in which to try them."""
        if not self.constrained:
            return (LEGACY,)
        last = self._modes.get(requestor.name)
        if last is None:
            return MODES
        self._modes.move_to_end(requestor.name)
        return (last, *(mode for mode in MODES if mode is not last))

    def constraint(self, requestor: User) -> str:
        """Return the verb of the constrained mode that last worked for the requestor; "" for the legacy mode."""
        mode = self._modes.get(requestor.name)
        return f"impersonate:{mode.name}" if mode is not None and mode.name else ""

    def last(self, requestor: User) -> str:
        """Return the name of the mode that last worked for the requestor, as metrics have it."""
        mode = self._modes.get(requestor.name)
        return mode.name if mode is not None and mode.name else LEGACY_LABEL

    def worked(self, requestor: User, mode: Mode) -> None:
        if self._modes.get(requestor.name) is not mode and len(requestor.name) <= LONGEST_REMEMBERED:
            self._modes[requestor.name] = mode
            self._modes.move_to_end(requestor.name)
            if len(self._modes) > REMEMBERED:
                self._modes.popitem(last=False)


def impersonate(
    chain: AuthorizationChain,
    requestor: User,
    wanted: User,
    info: RequestInfo,
    last_modes: LastModes,
    metrics: ImpersonationMetrics | None = None,
) -> User:
    """Return the identity of the request. Raises the 403 of the first mode that was tried and applies."""
    refusal: StatusError | None = None
    for mode in last_modes.ordered(requestor):
        if not mode.applies(wanted, requestor):
            continue
        try:
            check = _RightCheck(chain, mode, requestor, metrics, errors=last_modes.constrained)
            user = check.identity(wanted, info)
        except StatusError as error:
            refusal = refusal or error
            continue
        last_modes.worked(requestor, mode)
        return user
    raise refusal or status.internal_error("all impersonation modes failed")


class _RightCheck:
    """The check of one identity in one mode. ``errors``: refusals tell errors of authorizers, and the uid is checked
    early."""

    def __init__(
        self,
        chain: AuthorizationChain,
        mode: Mode,
        requestor: User,
        metrics: ImpersonationMetrics | None,
        *,
        errors: bool = True,
    ) -> None:
        self._chain = chain
        self._errors = errors
        self._metrics = metrics
        self._mode = mode
        self._requestor = requestor
        if mode.name == ASSOCIATED_NODE:
            # The decision must hold for every node with pods of the same account.
            self._requestor = replace(requestor, extra={NODE_KEYS_KEY: tuple(sorted(requestor.extra))})

    def identity(self, wanted: User, info: RequestInfo) -> User:
        mode = self._mode.name
        if mode:
            self._permit(replace(info, verb=f"impersonate-on:{mode}:{info.verb}"))
        user = replace(wanted, groups=self._name(wanted))
        if wanted.uid and self._errors:
            self._permit(self._right("uids", wanted.uid, group=AUTHENTICATION))
        if wanted.groups:
            self._groups(wanted.groups)
        if wanted.extra:
            self._extra(wanted.extra)
        if wanted.uid and not self._errors:
            self._permit(self._right("uids", wanted.uid, group=AUTHENTICATION))
        if user.name == ANONYMOUS:
            added = GROUP_UNAUTHENTICATED
        elif GROUP_UNAUTHENTICATED not in user.groups:
            added = GROUP_AUTHENTICATED
        else:
            return user
        return user if added in user.groups else replace(user, groups=(*user.groups, added))

    def _name(self, wanted: User) -> tuple[str, ...]:
        """Check the right to the name. Returns the groups of the user."""
        account = _account(wanted.name)
        node = _node_name(wanted.name) if self._mode.name else ""
        if account is not None:
            right = replace(self._right("serviceaccounts", account[1]), namespace=account[0])
            groups = wanted.groups or (GROUP_SERVICE_ACCOUNTS, f"{GROUP_SERVICE_ACCOUNTS}:{account[0]}")
        elif node:
            right = self._right("nodes", "*" if self._mode.name == ASSOCIATED_NODE else node)
            groups = (GROUP_NODES,)
        else:
            right, groups = self._right("users", wanted.name), wanted.groups
        self._permit(right)
        return groups

    def _groups(self, groups: Sequence[str]) -> None:
        right = self._right("groups", "")
        if self._mode.name:
            if "" in groups:
                raise self._refused(right, "impersonating the empty string group is not allowed")
            if GROUP_MASTERS in groups:
                masters = replace(right, name=GROUP_MASTERS)
                raise self._refused(masters, "impersonating the system:masters group is not allowed")
            if len(groups) >= MANY and self._permits(replace(right, name="*")):
                return
        for group in groups:
            self._permit(replace(right, name=group))

    def _extra(self, extra: Mapping[str, Sequence[str]]) -> None:
        right = self._right("userextras", "", group=AUTHENTICATION)
        if self._mode.name:
            problem = _extra_problem(extra)
            if problem:
                raise self._refused(right, problem)
            many = len(extra) >= MANY or sum(map(len, extra.values())) >= MANY
            if many and self._permits(replace(right, subresource="*", name="*")):
                return
        for key, values in extra.items():
            for value in values:
                self._permit(replace(right, subresource=key, name=value))

    def _right(self, resource: str, name: str, *, group: str = "") -> RequestInfo:
        """Return the right to a part of an identity. In the legacy mode users and groups are in the core API group."""
        mode = self._mode.name
        return RequestInfo(
            path="",
            verb=f"impersonate:{mode}" if mode else "impersonate",
            is_resource=True,
            group=AUTHENTICATION if mode else group,
            version="v1",
            resource=resource,
            name=name,
        )

    def _permits(self, right: RequestInfo) -> bool:
        return self._decide(right).decision is Decision.ALLOW

    def _decide(self, right: RequestInfo) -> Verdict:
        started = perf_counter()
        verdict = self._chain.decide(self._requestor, right)
        if self._metrics is not None:
            allowed = verdict.decision is Decision.ALLOW
            self._metrics.checked(self._mode.name or LEGACY_LABEL, perf_counter() - started, allowed=allowed)
        return verdict

    def _permit(self, right: RequestInfo) -> None:
        verdict = self._decide(right)
        if verdict.decision is not Decision.ALLOW:
            error = verdict.error if self._errors else ""
            raise self._refused(right, ": ".join(filter(None, (error, verdict.reason))))

    def _refused(self, right: RequestInfo, reason: str) -> StatusError:
        return forbidden(self._requestor, right, reason)


_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_EXTRA_KEY: Final = re.compile(rf"{_LABEL}(\.{_LABEL})*/[A-Za-z0-9/\-._~%!$&'()*+,;=:]+")


def _extra_problem(extra: Mapping[str, Sequence[str]]) -> str:
    """Return the error of extra keys and values in the constrained modes, "" for none."""
    for key, values in extra.items():
        if not key:
            return "impersonating the empty string key in extra is not allowed"
        if not _EXTRA_KEY.fullmatch(key):
            return f"impersonating an invalid key in extra is not allowed: {go_quote(key)}"
        if "" in values:
            return "impersonating the empty string value in extra is not allowed"
    return ""
