"""Impersonation: a request made as somebody else (the Impersonate-* headers), if the one who asks may do that.

Kubernetes' two ways, the narrow one first (KEP-5284). A mode applies to certain users, and wants a right for the
request itself and one for each part of the identity:

    mode             applies to                        rights, in authentication.k8s.io
    associated-node  the node the asking pod runs on   impersonate-on:associated-node:VERB; impersonate:associated-node
    arbitrary-node   system:node:NAME                  impersonate-on:arbitrary-node:VERB;  impersonate:arbitrary-node
    serviceaccount   system:serviceaccount:NS:NAME     impersonate-on:serviceaccount:VERB;  impersonate:serviceaccount
    user-info        everybody else                    impersonate-on:user-info:VERB;       impersonate:user-info
    legacy           everybody                         impersonate, in the core group, whatever the request is

If none of them allows it, the first refusal is told.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kubechronicle.api.errors import status
from kubechronicle.api.errors.field_errors import go_quote
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.values import names
from kubechronicle.http.authentication.request_header import extra_fields
from kubechronicle.http.authentication.user import (
    ANONYMOUS,
    GROUP_AUTHENTICATED,
    GROUP_MASTERS,
    GROUP_UNAUTHENTICATED,
    User,
)
from kubechronicle.http.authorization.decision import AuthorizationChain, Decision, forbidden
from kubechronicle.http.authorization.node import GROUP_NODES, NODE_PREFIX
from kubechronicle.http.messages import Headers, utf8
from kubechronicle.http.request_info import RequestInfo

PREFIX: Final = "impersonate-"
USER, GROUP, UID, EXTRA = "impersonate-user", "impersonate-group", "impersonate-uid", "impersonate-extra-"

SERVICE_ACCOUNT: Final = "system:serviceaccount:"
GROUP_SERVICE_ACCOUNTS: Final = "system:serviceaccounts"
# Where a token tells on which node its pod runs.
NODE_NAME_KEY: Final = "authentication.kubernetes.io/node-name"
NODE_KEYS_KEY: Final = "authentication.kubernetes.io/associated-node-keys"
AUTHENTICATION: Final = "authentication.k8s.io"
# From so many groups or extra values on, the right to all of them is asked for first.
MANY: Final = 4


def wanted_user(headers: Headers) -> User | None:
    """Whom the request wants to be made as, exactly as the headers say; None: nobody else. 400 without a name."""
    name, uid = utf8(headers.get(USER)), utf8(headers.get(UID))
    groups = tuple(map(utf8, headers.get_all(GROUP)))
    extra: dict[str, tuple[str, ...]] = {}
    for key, value in extra_fields(headers, EXTRA):
        extra[key] = (*extra.get(key, ()), value)
    if name:
        return User(name=name, uid=uid, groups=groups, extra=extra)
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


# -- who may be whom --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Mode:
    """``applies(wanted, requestor)`` tells whom it is for; no name: the legacy mode."""

    name: str
    applies: Callable[[User, User], bool]


def _only_named(wanted: User) -> bool:
    return not (wanted.uid or wanted.groups or wanted.extra)


def _node_name(user: str) -> str:
    name = user.removeprefix(NODE_PREFIX)
    return name if name != user and not names.dns_subdomain(name) else ""


def _account(user: str) -> tuple[str, str] | None:
    """Namespace and name of the service account a user is. One that could not be a service account is a user as any
    other (SplitUsername of k8s.io/apiserver)."""
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


def impersonate(chain: AuthorizationChain, requestor: User, wanted: User, info: RequestInfo) -> User:
    """The identity the request goes on with. StatusError 403, as the first mode that applies has put it."""
    refusal: StatusError | None = None
    for mode in MODES:
        if not mode.applies(wanted, requestor):
            continue
        try:
            return _Check(chain, mode, requestor).identity(wanted, info)
        except StatusError as error:
            refusal = refusal or error
    raise refusal or status.internal_error("all impersonation modes failed")


class _Check:
    """One attempt in one mode."""

    def __init__(self, chain: AuthorizationChain, mode: Mode, requestor: User) -> None:
        self._chain = chain
        self._mode = mode
        self._requestor = requestor
        if mode.name == ASSOCIATED_NODE:
            # What is decided must hold for every node the same account's pods run on.
            self._requestor = replace(requestor, extra={NODE_KEYS_KEY: tuple(sorted(requestor.extra))})

    def identity(self, wanted: User, info: RequestInfo) -> User:
        mode = self._mode.name
        if mode:
            self._permit(replace(info, verb=f"impersonate-on:{mode}:{info.verb}"))
        found = replace(wanted, groups=self._name(wanted))
        if wanted.uid:
            self._permit(self._right("uids", wanted.uid, group=AUTHENTICATION))
        if wanted.groups:
            self._groups(wanted.groups)
        if wanted.extra:
            self._extra(wanted.extra)
        if found.name == ANONYMOUS:
            added = GROUP_UNAUTHENTICATED
        elif GROUP_UNAUTHENTICATED not in found.groups:
            added = GROUP_AUTHENTICATED
        else:
            return found
        return found if added in found.groups else replace(found, groups=(*found.groups, added))

    def _name(self, wanted: User) -> tuple[str, ...]:
        """Ask for the right to the name; return the groups that go with it."""
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
        """To be somebody, or part of it: legacy names and groups are in the core group."""
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
        return self._chain.decide(self._requestor, right).decision is Decision.ALLOW

    def _permit(self, right: RequestInfo) -> None:
        verdict = self._chain.decide(self._requestor, right)
        if verdict.decision is not Decision.ALLOW:
            raise self._refused(right, ": ".join(filter(None, (verdict.error, verdict.reason))))

    def _refused(self, right: RequestInfo, reason: str) -> StatusError:
        return forbidden(self._requestor, right, reason)


_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_EXTRA_KEY: Final = re.compile(rf"{_LABEL}(\.{_LABEL})*/[A-Za-z0-9/\-._~%!$&'()*+,;=:]+")


def _extra_problem(extra: Mapping[str, Sequence[str]]) -> str:
    """What the narrow modes ask of extra keys and values."""
    for key, values in extra.items():
        if not key:
            return "impersonating the empty string key in extra is not allowed"
        if not _EXTRA_KEY.fullmatch(key):
            return f"impersonating an invalid key in extra is not allowed: {go_quote(key)}"
        if "" in values:
            return "impersonating the empty string value in extra is not allowed"
    return ""
