"""Whom to ask and as whom: kubeconfig files and flags, as kubectl reads them (k8s.io/client-go/tools/clientcmd).

    KUBECONFIG=a:b        files are merged: of each name the first counts, and the first current-context there is
    --kubeconfig FILE     that file alone
    neither               ~/.kube/config; without it, within a Pod, its service account

Certificates, tokens, passwords and credential plugins (``exec``) are understood; ``auth-provider``, which kubectl
itself does not know any more, is refused.
"""

from __future__ import annotations

import argparse
import base64
import binascii
import copy
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final
from urllib.request import getproxies, proxy_bypass

import yaml

from kubechronicle.ops.client.server import Pem, Server
from kubechronicle.ops.errors import OperatorError

Document = dict[str, Any]

HOW_TO_NAME: Final = "name it with KUBECONFIG, --kubeconfig FILE or --server URL"
# Files of kubeconfigs, and those of theirs that are named relative to them.
CLUSTER_FILES: Final = ("certificate-authority",)
USER_FILES: Final = ("client-certificate", "client-key", "tokenFile")
POD_FILES: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True)
class Target:
    """``headers``: those of impersonation. ``plugin``: the exec entry of the user, to be asked for credentials;
    ``cluster``: what such a plugin may be told. ``document``: all files merged, for kubectl; its paths absolute."""

    server: Server
    namespace: str
    headers: tuple[tuple[str, str], ...] = ()
    plugin: Mapping[str, Any] | None = None
    cluster: Mapping[str, Any] = field(default_factory=dict)
    document: Document = field(default_factory=dict, repr=False)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """kubectl's flags, by its names."""
    group = parser.add_argument_group("the server and who asks, as for kubectl")
    group.add_argument("-n", "--namespace", metavar="NAME", default="", help="instead of the context's namespace")
    for name, metavar, text in (
        ("kubeconfig", "FILE", "instead of KUBECONFIG and ~/.kube/config"),
        ("context", "NAME", "instead of the current context"),
        ("token", "TOKEN", "a bearer token, instead of the user's credentials"),
        ("certificate-authority", "FILE", "who may have signed the server's certificate"),
        ("as", "USER", "impersonate this user"),
    ):
        group.add_argument(f"--{name}", metavar=metavar, default="", help=text)
    group.add_argument("-s", "--server", metavar="URL", default="", help="instead of the cluster's")
    group.add_argument("--as-group", metavar="GROUP", action="append", default=[], help="and this group; repeatable")
    group.add_argument(
        "--insecure-skip-tls-verify", action="store_true", help="believe whatever certificate the server shows"
    )


def load(given: argparse.Namespace, environment: Mapping[str, str] = os.environ) -> Target:
    """OperatorError."""
    document = merged(given.kubeconfig, environment)
    try:
        target = _target(document, given)
    except ValueError as error:
        raise OperatorError(f"kubeconfig: {error}") from None
    if target is None:
        target = _pod(environment, given)
    if target is None:
        raise OperatorError(f"no server is known; {HOW_TO_NAME}")
    proxy = target.server.proxy_url or _proxy(target.server.url)
    return replace(target, server=replace(target.server, proxy_url=proxy))


def merged(file: str, environment: Mapping[str, str] = os.environ) -> Document:
    """All that the files say, {} where there is none. OperatorError."""
    if file:
        return _absolute(_document(Path(file).expanduser()), Path(file).expanduser())
    listed = environment.get("KUBECONFIG", "")
    files = [Path(each) for each in listed.split(os.pathsep) if each]
    if not listed:
        files = [Path(environment.get("HOME") or Path.home()) / ".kube" / "config"]
    found: Document = {}
    for each in files:
        if each.exists():
            _merge(found, _absolute(_document(each), each))
    return found


def _document(file: Path) -> Document:
    try:
        document = yaml.safe_load(file.read_bytes())
    except OSError as error:
        raise OperatorError(f"{file} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError):
        raise OperatorError(f"{file} is no kubeconfig: it is not YAML") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise OperatorError(f"{file} is no kubeconfig: it must be a mapping")
    return document


def _absolute(document: Document, file: Path) -> Document:
    folder = file.resolve().parent
    for listed, kind, names in (("clusters", "cluster", CLUSTER_FILES), ("users", "user", USER_FILES)):
        for entry in _entries(document, listed):
            values = entry.get(kind)
            if not isinstance(values, dict):
                continue
            for name in names:
                if isinstance(values.get(name), str) and values[name]:
                    values[name] = str(folder / values[name])
            plugin = values.get("exec")
            command = plugin.get("command") if isinstance(plugin, dict) else None
            if isinstance(plugin, dict) and isinstance(command, str) and "/" in command:
                plugin["command"] = str(folder / command)
    return document


def _merge(found: Document, more: Document) -> None:
    for name, value in more.items():
        if name in ("clusters", "contexts", "users"):
            known = {entry.get("name") for entry in _entries(found, name)}
            found[name] = [*_entries(found, name), *(e for e in _entries(more, name) if e.get("name") not in known)]
        elif not found.get(name):
            found[name] = value


def _entries(document: Mapping[str, Any], listed: str) -> list[dict[str, Any]]:
    found = document.get(listed)
    return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []


def _target(document: Document, given: argparse.Namespace) -> Target | None:
    """None: no server is named. ValueError."""
    name = given.context or _text(document, "current-context")
    context = _named(document, "contexts", "context", name) if name else {}
    cluster_name = _text(context, "cluster")
    user_name = _text(context, "user")
    cluster = dict(_named(document, "clusters", "cluster", cluster_name)) if cluster_name else {}
    user = dict(_named(document, "users", "user", user_name)) if user_name else {}
    if given.server:
        cluster["server"] = given.server
    if given.certificate_authority:
        cluster |= {"certificate-authority": given.certificate_authority, "certificate-authority-data": ""}
    if given.insecure_skip_tls_verify:
        cluster = {"insecure-skip-tls-verify": True} | {
            name: value for name, value in cluster.items() if not name.startswith(("certificate-auth", "insecure"))
        }
    server = _text(cluster, "server")
    if not server:
        return None
    if given.token:
        user = {"token": given.token}
    if user.get("auth-provider"):
        raise ValueError(f"user {user_name!r}: auth-provider is not supported; use exec, as kubectl does")
    plugin = user.get("exec")
    if plugin is not None and not isinstance(plugin, dict):
        raise ValueError(f"user {user_name!r}: exec must be a mapping")
    return Target(
        _server(cluster, user, server),
        given.namespace or _text(context, "namespace") or "default",
        _impersonation(user, given),
        plugin,
        cluster,
        _as_given(document, given, cluster, user),
    )


def _server(cluster: Mapping[str, Any], user: Mapping[str, Any], server: str) -> Server:
    token_file = _text(user, "tokenFile")
    return Server(
        url=server if "://" in server else f"https://{server}",
        ca=_pem(cluster, "certificate-authority"),
        certificate=_pem(user, "client-certificate"),
        key=_pem(user, "client-key"),
        token=_text(user, "token"),
        token_file=Path(token_file) if token_file else None,
        username=_text(user, "username"),
        password=_text(user, "password"),
        server_name=_text(cluster, "tls-server-name"),
        insecure=cluster.get("insecure-skip-tls-verify") is True,
        proxy_url=_text(cluster, "proxy-url"),
    )


def _impersonation(user: Mapping[str, Any], given: argparse.Namespace) -> tuple[tuple[str, str], ...]:
    name = given.__dict__.get("as") or _text(user, "as")
    groups = given.as_group or user.get("as-groups") or []
    extra = user.get("as-user-extra") or {}
    headers = [("Impersonate-User", name)] if name else []
    headers += [("Impersonate-Uid", _text(user, "as-uid"))] if _text(user, "as-uid") else []
    headers += [("Impersonate-Group", str(group)) for group in groups]
    headers += [(f"Impersonate-Extra-{key}", str(value)) for key, values in extra.items() for value in values]
    return tuple(headers)


def _as_given(
    document: Document, given: argparse.Namespace, cluster: Mapping[str, Any], user: Mapping[str, Any]
) -> Document:
    """The merged document with what the flags say for its current context."""
    found = copy.deepcopy(document)
    name = given.context or _text(document, "current-context") or "kubechronicle"
    flags = {"as": given.__dict__.get("as"), "as-groups": given.as_group}
    user = dict(user) | {key: value for key, value in flags.items() if value}
    context = dict(_named(document, "contexts", "context", name)) if _has(document, "contexts", name) else {}
    context |= {"cluster": f"{name}-asked", "user": f"{name}-asks"}
    if given.namespace:
        context["namespace"] = given.namespace
    for listed, kind, called, value in (
        ("clusters", "cluster", f"{name}-asked", cluster),
        ("users", "user", f"{name}-asks", user),
        ("contexts", "context", name, context),
    ):
        others = [entry for entry in _entries(found, listed) if entry.get("name") != called]
        found[listed] = [*others, {"name": called, kind: dict(value)}]
    return {"apiVersion": "v1", "kind": "Config", **found, "current-context": name}


def _pod(environment: Mapping[str, str], given: argparse.Namespace) -> Target | None:
    """As whom a Pod asks the server of its cluster (rest.InClusterConfig)."""
    host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", "")
    token, ca = POD_FILES / "token", POD_FILES / "ca.crt"
    if not host or not port or not token.exists():
        return None
    namespace = given.namespace
    if not namespace and (POD_FILES / "namespace").exists():
        namespace = (POD_FILES / "namespace").read_text().strip()
    url = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    cluster = {"server": url, "certificate-authority": str(ca)}
    document = _as_given({}, given, cluster, {"tokenFile": str(token)})
    headers = _impersonation({}, given)
    return Target(Server(url=url, ca=ca, token_file=token), namespace or "default", headers, document=document)


def _proxy(url: str) -> str:
    """The environment's, as net/http has it (HTTPS_PROXY, NO_PROXY)."""
    scheme, _, rest = url.partition("://")
    host = rest.partition("/")[0].rpartition("@")[2]
    if host.startswith(("127.", "localhost", "[::1]")) or proxy_bypass(host):
        return ""
    return getproxies().get(scheme, "")


def _has(document: Mapping[str, Any], listed: str, name: str) -> bool:
    return any(entry.get("name") == name for entry in _entries(document, listed))


def _named(document: Mapping[str, Any], listed: str, kind: str, name: str) -> Mapping[str, Any]:
    for entry in _entries(document, listed):
        if entry.get("name") == name:
            found = entry.get(kind) or {}
            if isinstance(found, dict):
                return found
            raise ValueError(f"{kind} {name!r} must be a mapping")
    names = ", ".join(str(entry.get("name")) for entry in _entries(document, listed))
    raise ValueError(f"there is no {kind} {name!r}" + (f", only {names}" if names else ""))


def _text(values: Mapping[str, Any], name: str) -> str:
    value = values.get(name)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{name} must be a string")
    return value or ""


def _pem(values: Mapping[str, Any], name: str) -> Pem:
    """The data counts before the file, as clientcmd has it."""
    file, data = _text(values, name), _text(values, f"{name}-data")
    if not data:
        return Path(file) if file else None
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"{name}-data is not base64") from None
