"""The kubeconfig file by which a webhook is told: k8s.io/client-go/tools/clientcmd, for the fields that say whom to ask
and what to show. ``exec`` and ``auth-provider`` are refused: nothing is run to get a credential.

    current-context: authorizer
    contexts: [{name: authorizer, context: {cluster: there, user: us}}]
    clusters: [{name: there, cluster: {server: https://authz.example/review, certificate-authority: ca.crt}}]
    users: [{name: us, user: {client-certificate: us.crt, client-key: us.key}}]

Relative paths are relative to the file.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from kubechronicle.http.outgoing.peer import Peer, Pem, credentials_of

REFUSED: Final = ("exec", "auth-provider", "as", "as-uid", "as-groups", "as-user-extra")


class KubeconfigError(ValueError):
    """The file can't be used; the message is one line that begins with its path."""


def read_kubeconfig(path: Path, *, http_allowed: bool = False) -> Peer:
    """The peer of the current context, with all its files read once to see that they can be used. KubeconfigError."""
    try:
        peer = _peer(_document(path), path.parent, http_allowed=http_allowed)
        credentials_of(peer)
    except ValueError as error:
        raise KubeconfigError(f"{path}: {error}") from None
    return peer


def _document(path: Path) -> Mapping[str, Any]:
    try:
        document = yaml.safe_load(path.read_bytes())
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark is not None else ""
        raise ValueError(f"is not YAML{where}: {getattr(error, 'problem', None) or 'it cannot be parsed'}") from None
    if not isinstance(document, dict):
        raise ValueError("is no kubeconfig: it must be a mapping")
    if document.get("kind") not in (None, "Config") or document.get("apiVersion") not in (None, "v1"):
        raise ValueError("is no kubeconfig: kind must be Config and apiVersion v1")
    return document


def _peer(document: Mapping[str, Any], folder: Path, *, http_allowed: bool) -> Peer:
    current = _text(document, "current-context")
    if not current:
        raise ValueError("current-context is not set")
    context = _named(document, "contexts", "context", current)
    cluster_name, user_name = _text(context, "cluster"), _text(context, "user")
    cluster = _named(document, "clusters", "cluster", cluster_name)
    user = _named(document, "users", "user", user_name) if user_name else {}
    for name in REFUSED:
        if user.get(name):
            raise ValueError(f"user {user_name!r}: {name} is not supported here")
    server = _text(cluster, "server")
    if not server:
        raise ValueError(f"cluster {cluster_name!r}: server is not set")
    token_file = _text(user, "tokenFile")
    return Peer(
        url=server if "://" in server else f"https://{server}",
        ca=_pem(cluster, "certificate-authority", folder),
        certificate=_pem(user, "client-certificate", folder),
        key=_pem(user, "client-key", folder),
        token=_text(user, "token"),
        token_file=folder / token_file if token_file else None,
        username=_text(user, "username"),
        password=_text(user, "password"),
        server_name=_text(cluster, "tls-server-name"),
        insecure=_flag(cluster, "insecure-skip-tls-verify"),
        proxy_url=_text(cluster, "proxy-url"),
        http_allowed=http_allowed,
    )


def _named(document: Mapping[str, Any], listed: str, field: str, name: str) -> Mapping[str, Any]:
    """The first entry of that name, as clientcmd takes it."""
    entries = document.get(listed) or []
    if not isinstance(entries, list):
        raise ValueError(f"{listed} must be a list")
    for entry in entries:
        if isinstance(entry, dict) and entry.get("name") == name:
            found = entry.get(field) or {}
            if not isinstance(found, dict):
                raise ValueError(f"{field} {name!r} must be a mapping")
            return found
    raise ValueError(f"there is no {field} {name!r}")


def _text(values: Mapping[str, Any], name: str) -> str:
    value = values.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a string")
    return value


def _flag(values: Mapping[str, Any], name: str) -> bool:
    value = values.get(name)
    if value is not None and not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false")
    return bool(value)


def _pem(values: Mapping[str, Any], name: str, folder: Path) -> Pem:
    file, data = _text(values, name), _text(values, f"{name}-data")
    if file and data:
        raise ValueError(f"{name} and {name}-data are both given; one is enough")
    if file:
        return folder / file
    if not data:
        return None
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"{name}-data is not base64") from None
