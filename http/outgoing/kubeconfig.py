"""Kubeconfig files of webhooks and of commands, by the rules of kubectl (k8s.io/client-go/tools/clientcmd).

    current-context: authorizer
    contexts: [{name: authorizer, context: {cluster: there, user: us}}]
    clusters: [{name: there, cluster: {server: https://authz.example/review, certificate-authority: ca.crt}}]
    users: [{name: us, user: {client-certificate: us.crt, client-key: us.key}}]

    names    a file has each once
    types    those of FIELDS, in all entries; unknown fields are ignored
    paths    relative to the folder of the file as it is named: links are not followed
    PEM      a file or data, not both

A user with ``exec`` has the credentials that a program issues (credential_plugins.py). ``auth-provider`` is rejected:
kubectl has dropped it, too. Commands start with this module, so it imports little.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from kubechronicle.api.codecs import plain_yaml
from kubechronicle.http.outgoing.remote_server import Pem, RemoteServer, load_credentials

Document = dict[str, Any]

UNKNOWN_URL: Final = "https://webhook.invalid"
"""The URL of a peer whose address the webhook's configuration gives."""
HTTPS: Final = 443

SECTIONS: Final = {"clusters": "cluster", "users": "user", "contexts": "context"}
FIELDS: Final[Mapping[str, Mapping[str, type]]] = {
    "cluster": {
        "server": str,
        "tls-server-name": str,
        "insecure-skip-tls-verify": bool,
        "certificate-authority": Path,
        "certificate-authority-data": bytes,
        "proxy-url": str,
    },
    "user": {
        "client-certificate": Path,
        "client-certificate-data": bytes,
        "client-key": Path,
        "client-key-data": bytes,
        "token": str,
        "tokenFile": Path,
        "username": str,
        "password": str,
        "exec": dict,
        "as": str,
        "as-uid": str,
    },
    "context": {"cluster": str, "user": str, "namespace": str},
}
_WRONG: Final[Mapping[type, str]] = {bool: "must be true or false", dict: "must be a mapping"}
NOT_OF_WEBHOOKS: Final = ("as", "as-uid", "as-groups", "as-user-extra")


class KubeconfigError(ValueError):
    """The file can't be used. The message is one line that begins with its path."""


# -- reading -----------------------------------------------------------------------------------------------------------


def read_document(path: Path) -> Document:
    """Return a checked file, {} if it is empty, with absolute paths. KubeconfigError."""
    try:
        document = _parsed(path)
        _check_types(document)
    except ValueError as error:
        raise KubeconfigError(f"{path}: {error}") from None
    folder = os.path.dirname(os.path.abspath(path))
    for kind, values in _entries(document):
        for name, type_ in FIELDS[kind].items():
            if type_ is Path and values.get(name):
                values[name] = os.path.join(folder, values[name])
        plugin = values.get("exec")
        command = plugin.get("command") if plugin else None
        if plugin and isinstance(command, str) and "/" in command:
            plugin["command"] = os.path.join(folder, command)
    return document


def _parsed(path: Path) -> Document:
    try:
        text = path.read_bytes().decode()
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError("is not a kubeconfig: it is not YAML") from None
    document = plain_yaml.read(text)
    document = _parsed_by_library(text) if document is None else document
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ValueError("is not a kubeconfig: it must be a mapping")
    return document


def _parsed_by_library(text: str) -> Any:
    import yaml  # takes longer than all else that is read here

    try:
        return yaml.load(text, Loader=yaml.CSafeLoader)
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark is not None else ""
        why = getattr(error, "problem", None) or "it cannot be parsed"
        raise ValueError(f"is not a kubeconfig: it is not YAML{where}: {why}") from None


def _check_types(document: Document) -> None:
    for name, wanted in (("kind", "Config"), ("apiVersion", "v1")):
        if (document.get(name) or wanted) != wanted:
            raise ValueError(f'{name} must be "{wanted}", not "{document[name]}"')
    if not isinstance(document.get("current-context") or "", str):
        raise ValueError("current-context must be a string")
    for section, kind in SECTIONS.items():
        entries = document.get(section)
        if not isinstance(entries if entries is not None else [], list):
            raise ValueError(f"{section} must be a list")
        names = set()
        for position, entry in enumerate(entries or ()):
            place = f"{section}[{position}]"
            if not isinstance(entry, dict):
                raise ValueError(f"{place} must be a mapping")
            name = entry.get("name") or ""
            if not isinstance(name, str):
                raise ValueError(f"{place}.name must be a string")
            if name in names:
                raise ValueError(f"there are two {section} {name!r}")
            names.add(name)
            _check_fields(entry.get(kind), FIELDS[kind], f"{place}.{kind}")


def _check_fields(values: Any, fields: Mapping[str, type], place: str) -> None:
    if values is None:
        return
    if not isinstance(values, dict):
        raise ValueError(f"{place} must be a mapping")
    for name, type_ in fields.items():
        value = values.get(name)
        if value is None:
            continue
        if not isinstance(value, type_ if type_ in (bool, dict) else str):
            raise ValueError(f"{place}.{name} {_WRONG.get(type_, 'must be a string')}")
        if type_ is bytes and isinstance(value, str):
            _decoded(value, f"{place}.{name}")


def _entries(document: Document) -> Iterator[tuple[str, Document]]:
    """Iterate over the kinds and values of all entries that have any."""
    for section, kind in SECTIONS.items():
        for entry in document.get(section) or ():
            if entry.get(kind):
                yield kind, entry[kind]


def named(document: Mapping[str, Any], section: str, name: str) -> Mapping[str, Any]:
    """Return the entry of that name. ValueError: there is none."""
    kind, entries = SECTIONS[section], document.get(section) or ()
    for entry in entries:
        if (entry.get("name") or "") == name:
            return entry.get(kind) or {}
    names = ", ".join(str(entry.get("name")) for entry in entries)
    raise ValueError(f"there is no {kind} {name!r}" + (f", only {names}" if names else ""))


# -- servers -----------------------------------------------------------------------------------------------------------


def server_of(
    cluster: Mapping[str, Any], user: Mapping[str, Any], user_name: str, *, by_user: bool = False
) -> RemoteServer:
    """Return the server of a cluster with the credentials of a user. It may have no TLS, as for client-go. ValueError.

    ``by_user``: a user runs this program, perhaps on a terminal.
    """
    server = cluster["server"]
    if user.get("auth-provider"):
        raise ValueError(f"user {user_name!r}: auth-provider is not supported; use exec, as kubectl does")
    token_file = user.get("tokenFile")
    found = RemoteServer(
        url=server if "://" in server else f"https://{server}",
        http_allowed=True,
        ca=_pem(cluster, "certificate-authority"),
        certificate=_pem(user, "client-certificate"),
        key=_pem(user, "client-key"),
        token=user.get("token") or "",
        token_file=Path(token_file) if token_file else None,
        username=user.get("username") or "",
        password=user.get("password") or "",
        server_name=cluster.get("tls-server-name") or "",
        insecure=cluster.get("insecure-skip-tls-verify") is True,
        proxy_url=cluster.get("proxy-url") or "",
    )
    plugin = user.get("exec")
    if plugin is None:
        return found
    from kubechronicle.http.outgoing.credential_plugins import plugin_of  # few kubeconfigs have one

    cluster = {} if found.url == UNKNOWN_URL else found.as_cluster()
    return found.replaced(plugin=plugin_of(plugin, Path(), cluster, by_user=by_user))


def _pem(values: Mapping[str, Any], name: str) -> Pem:
    """Return the PEM or its file. clientcmd (``validation.go``) refuses both."""
    file, data = values.get(name), values.get(f"{name}-data")
    if file and data:
        raise ValueError(f"{name} and {name}-data are both given; one is enough")
    return Path(file) if file else _decoded(data, f"{name}-data") if data else None


def _decoded(text: str, name: str) -> bytes:
    try:
        return base64.b64decode(text.replace("\n", "").replace("\r", ""), validate=True)  # as Go does
    except (binascii.Error, ValueError):
        raise ValueError(f"{name} is not base64") from None


# -- webhooks ----------------------------------------------------------------------------------------------------------


def read_kubeconfig(path: Path) -> RemoteServer:
    """Return the peer of the current context.

    All files it names are read once, to see that they can be used. Raises KubeconfigError.
    """
    document = read_document(path)
    try:
        current = document.get("current-context")
        if not current:
            raise ValueError("current-context is not set")
        context = named(document, "contexts", current)
        cluster_name, user_name = context.get("cluster") or "", context.get("user") or ""
        cluster = named(document, "clusters", cluster_name)
        user = named(document, "users", user_name) if user_name else {}
        if not cluster.get("server"):
            raise ValueError(f"cluster {cluster_name!r}: server is not set")
        return _checked(cluster, user, user_name)
    except ValueError as error:
        raise KubeconfigError(f"{path}: {error}") from None


class WebhookUsers(NamedTuple):
    """The credentials for admission webhooks, by their hosts. Its peers have credentials, but no address.

    ``users``: by pattern: ``hook.ns.svc``, ``hook.ns.svc:8443``, ``*.example.com`` or ``*``.
    ``current``: the user of the current context, for other hosts.
    """

    users: Mapping[str, RemoteServer]
    current: RemoteServer

    def of(self, host: str, port: int) -> RemoteServer:
        """Return the credentials for a webhook (``pkg/util/webhook/authentication.go``).

        First the whole host counts, then ever shorter endings. Patterns with the port precede those without it, which
        stand for port 443 only.
        """
        target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        for name in (target, host) if port == HTTPS else (target,):
            steps = name.split(".")
            for pattern in (name, *("*." + ".".join(steps[i:]) for i in range(1, len(steps)))):
                if pattern in self.users:
                    return self.users[pattern]
        return self.users.get("*", self.current)


def read_webhook_users(path: Path) -> WebhookUsers:
    """Return the users of a kubeconfig whose names are hosts of admission webhooks. Raises KubeconfigError."""
    document = read_document(path)
    users: dict[str, RemoteServer] = {}
    for entry in document.get("users") or ():
        name = entry.get("name") or ""
        try:
            users[name] = _checked({"server": UNKNOWN_URL}, entry.get("user") or {}, name)
        except ValueError as error:
            text = str(error)
            raise KubeconfigError(f"{path}: {text if text.startswith('user ') else f'user {name!r}: {text}'}") from None
    current, contexts = document.get("current-context") or "", document.get("contexts") or ()
    known = any((entry.get("name") or "") == current for entry in contexts)
    user = named(document, "contexts", current).get("user") if known else None
    return WebhookUsers(users, users.get(user or "", RemoteServer(url=UNKNOWN_URL)))


def _checked(cluster: Mapping[str, Any], user: Mapping[str, Any], user_name: str) -> RemoteServer:
    """Return the peer of a webhook, once its files can be used. ValueError.

    Programs run at the first request, as in client-go.
    """
    for name in NOT_OF_WEBHOOKS:
        if user.get(name):
            raise ValueError(f"user {user_name!r}: {name} is not supported here")
    peer = server_of(cluster, user, user_name)
    load_credentials(peer.replaced(plugin=None))
    return peer
