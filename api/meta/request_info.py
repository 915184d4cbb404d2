"""The information in a request's method and path (k8s.io/apiserver's RequestInfo resolver).

Pure: without registry look-ups, so a group or resource here need not exist.

    GET    /api/v1/namespaces/a/pods/p/status    get    "" v1 pods/status a/p
    GET    /apis/apps/v1/deployments?watch=1     watch  apps v1 deployments, all namespaces
    DELETE /api/v1/namespaces/a/pods             deletecollection
    GET    /api/v1/watch/namespaces/a/pods       watch  (the deprecated prefix)
    GET    /api/v1/namespaces/a                  get    namespaces a (its own namespace too, for authorization)
    GET    /healthz                              a non-resource request
    GET    /api/v1/watch                         undetermined: nothing follows the old verb
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote_plus

from kubechronicle.api.errors.field_errors import go_quote, without_html
from kubechronicle.api.meta.path_prefixes import BRANCH, HISTORY

VERB_OF_METHOD = {
    "POST": "create",
    "GET": "get",
    "HEAD": "get",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}
# Sub-paths of a namespace that are subresources of the namespace itself, not resources in it.
NAMESPACE_SUBRESOURCES = frozenset({"status", "finalize"})
# Verbs with selectors. Deprecated watches have none.
SELECTING_VERBS = frozenset({"list", "watch", "deletecollection"})
SPECIAL_VERBS = frozenset({"proxy", "watch"})
# Values of ?watch= that mean false, in lower case. Any other turns a list into a watch.
FALSE_VALUES = frozenset({"0", "false"})


@dataclass(slots=True)
class RequestInfo:
    """The information; absent parts are "". Treat it as immutable: requests share it, and ``frozen`` would cost 2 µs.

    ``resource``: the plural as in the path.
    ``parts``: the path after the namespace (resource, name, subresource, …).
    ``field_selector``, ``label_selector``: as the client wrote them, for authorization.
    ``deprecated_watch``: the path has the old /watch/ prefix.
    ``undetermined``: the path ends with an old verb; kube-apiserver answers it before authentication.
    """

    path: str
    verb: str
    is_resource: bool = False
    prefix: str = ""
    group: str = ""
    version: str = ""
    namespace: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""
    parts: tuple[str, ...] = ()
    field_selector: str = ""
    label_selector: str = ""
    deprecated_watch: bool = False
    undetermined: bool = False

    @property
    def group_resource(self) -> str:
        return f"{self.resource}.{self.group}" if self.group else self.resource

    @property
    def plural(self) -> str:
        return self.resource

    @property
    def scope(self) -> str:
        """The scope in metrics and traces: that of a creation is its object (CleanScope of k8s.io/apiserver)."""
        if self.name or self.verb == "create":
            return "resource"
        return "namespace" if self.namespace else "cluster" if self.is_resource else ""


# A pair that Go's net/url drops: with a semicolon, or a percent sign without two hexadecimal digits.
_DROPPED = re.compile(r";|%(?![0-9A-Fa-f]{2})")


class Query:
    """The parameters of a query string, as Go's net/url reads them: the first value of a name counts, and pairs that it
    cannot decode are dropped. Invalid UTF-8 is replaced."""

    __slots__ = ("_values",)

    def __init__(self, query_string: str) -> None:
        values: dict[str, list[str]] = {}
        if query_string:
            pairs = query_string.split("&")
            if _DROPPED.search(query_string) is not None:
                pairs = [pair for pair in pairs if _DROPPED.search(pair) is None]
            for pair in pairs:
                if pair:
                    name, _, value = pair.partition("=")
                    values.setdefault(_unquote(name), []).append(_unquote(value))
        self._values = values

    def get(self, name: str, default: str = "") -> str:
        values = self._values.get(name)
        return values[0] if values else default

    def get_all(self, name: str) -> list[str]:
        return self._values.get(name, [])

    def flag(self, name: str) -> bool:
        """Read a boolean as metav1 does: true if present and not a word for false."""
        values = self._values.get(name)
        return values is not None and values[0].lower() not in FALSE_VALUES

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def as_dict(self) -> dict[str, list[str]]:
        return self._values


def _unquote(text: str) -> str:
    return unquote_plus(text, errors="replace") if "%" in text or "+" in text else text


def split_moment(path: str) -> tuple[str, str]:
    """Split a history path into its moment and the ordinary path: ``/history/at/-2h/api/v1`` into ``-2h``, ``/api/v1``.
    A path without a moment is returned with ""."""
    moment, slash, rest = path[len(HISTORY) :].partition("/")
    return (moment, slash + rest or "/") if moment else ("", path)


def split_branch(path: str) -> tuple[str, str]:
    """Split a path in a branch into its name and the rest: ``/branch/try/api/v1`` into ``try``, ``/api/v1``. A path
    without a name is returned with ""."""
    name, slash, rest = path[len(BRANCH) :].partition("/")
    return (name, slash + rest or "/") if name else ("", path)


def resolve(method: str, path: str, query: Query) -> RequestInfo:
    """Return the request's info. A path that is not a resource request is a non-resource one, never an error."""
    verb = method.lower()
    # An empty part is one, too: no other part may take its place.
    parts = path.strip("/").split("/")
    if len(parts) < 3 or parts[0] not in ("api", "apis"):
        return RequestInfo(path=path, verb=verb)
    prefix, group, rest = parts[0], "", parts[1:]
    if prefix == "apis":
        if len(rest) < 3:
            return RequestInfo(path=path, verb=verb)
        group, rest = rest[0], rest[1:]
    version, rest = rest[0], rest[1:]
    verb = VERB_OF_METHOD.get(method, "")
    deprecated_watch = False
    if rest[0] in SPECIAL_VERBS:
        if len(rest) < 2:
            return RequestInfo(path=path, verb=method.lower(), undetermined=True)
        verb, deprecated_watch, rest = rest[0], rest[0] == "watch", rest[1:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        if len(rest) > 2 and not (rest[2] in NAMESPACE_SUBRESOURCES and len(rest) == 3):
            rest = rest[2:]
    resource = rest[0]
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 and verb != "proxy" else ""
    verb = "watch" if deprecated_watch else _collection_verb(verb, name, query)
    selects = verb in SELECTING_VERBS and not deprecated_watch
    field_selector = query.get("fieldSelector") if selects else ""
    label_selector = query.get("labelSelector") if selects else ""
    # Positional, because keyword arguments would triple the time.
    return RequestInfo(
        path,
        verb,
        True,
        prefix,
        group,
        version,
        namespace,
        resource,
        subresource,
        name,
        tuple(rest),
        field_selector,
        label_selector,
        deprecated_watch,
    )


def _collection_verb(verb: str, name: str, query: Query) -> str:
    if name:
        return verb
    if verb == "get":
        return "watch" if query.flag("watch") else "list"
    return "deletecollection" if verb == "delete" else verb


def forbidden_message(user: str, info: RequestInfo, reason: str = "") -> str:
    """Return the text of k8s.io/apiserver's responsewriters.Forbidden, with HTML escaped."""
    why = f": {reason}" if reason else ""
    who = f"User {go_quote(user)} cannot {info.verb}"
    if not info.is_resource:
        return f"{without_html(f'{who} path {go_quote(info.path)}')}{why}"
    resource = go_quote(f"{info.resource}/{info.subresource}" if info.subresource else info.resource)
    where = f"in the namespace {go_quote(info.namespace)}" if info.namespace else "at the cluster scope"
    return f"{without_html(f'{who} resource {resource} in API group {go_quote(info.group)} {where}')}{why}"
