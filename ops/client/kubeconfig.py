"""Server and user from kubeconfig files and flags, as kubectl reads them (k8s.io/client-go/tools/clientcmd).

    KUBECONFIG=a:b        the files are merged; the first entry of each name and the first current-context win
    --kubeconfig FILE     this file alone
    neither               ~/.kube/config; in a Pod without that file, the Pod's service account

Certificates, tokens, passwords and credential plugins (``exec``) are supported. ``auth-provider`` is rejected: kubectl
has dropped it, too.
"""

from __future__ import annotations

import argparse
import base64
import binascii
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from kubechronicle.api.codecs import plain_yaml
from kubechronicle.http.outgoing.remote_server import Pem, RemoteServer
from kubechronicle.ops.errors import OperatorError

Document = dict[str, Any]

HOW_TO_NAME: Final = "name it with KUBECONFIG, --kubeconfig FILE or --server URL"
# Fields with a path relative to the kubeconfig.
CLUSTER_FILES: Final = ("certificate-authority",)
USER_FILES: Final = ("client-certificate", "client-key", "tokenFile")
POD_FILES: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class Target:
    """The server of the current context, the namespace, and the user.

    ``headers``: the impersonation headers
    ``document``: returns all files merged, for kubectl, with absolute paths
    ``source``: the archive that the server answers about, "" for its own log (sources.py)
    """

    source = ""

    def __init__(
        self,
        server: RemoteServer,
        namespace: str,
        headers: tuple[tuple[str, str], ...],
        document: Callable[[], Document],
    ) -> None:
        self.server, self.namespace, self.headers, self.document = server, namespace, headers, document


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add kubectl's flags under the same names."""
    group = parser.add_argument_group("server and user, as for kubectl")
    group.add_argument("-n", "--namespace", metavar="NAME", default="", help="instead of the context's namespace")
    for name, metavar, text in (
        ("kubeconfig", "FILE", "instead of KUBECONFIG and ~/.kube/config"),
        ("context", "NAME", "instead of the current context"),
        ("token", "TOKEN", "a bearer token, instead of the user's credentials"),
        ("certificate-authority", "FILE", "the certificate authority of the server"),
        ("as", "USER", "impersonate this user"),
    ):
        group.add_argument(f"--{name}", metavar=metavar, default="", help=text)
    group.add_argument("-s", "--server", metavar="URL", default="", help="instead of the cluster's")
    group.add_argument("--as-group", metavar="GROUP", action="append", default=[], help="and this group; repeatable")
    group.add_argument("--insecure-skip-tls-verify", action="store_true", help="do not verify the server's certificate")


def of_file(file: Path, namespace: str = "", user: str = "") -> Target:
    """Return the target of one file, for programs without flags. ``user``: impersonate this one. OperatorError."""
    parser = argparse.ArgumentParser()
    add_flags(parser)
    return load(parser.parse_args([f"--kubeconfig={file}", f"--namespace={namespace}", f"--as={user}"]), {})


def load(arguments: argparse.Namespace, environment: Mapping[str, str] = os.environ) -> Target:
    """Return the target of the flags and the environment. OperatorError."""
    document = read_merged(arguments.kubeconfig, environment)
    try:
        target = _target(document, arguments) or _pod(environment, arguments)
        if target is None:
            missing = environment.get("KUBECONFIG") if not document and not arguments.kubeconfig else None
            why = f"KUBECONFIG={missing} does not exist, or is empty" if missing else "no server is configured"
            raise OperatorError(f"{why}; {HOW_TO_NAME}")
        target.server = target.server.replaced(proxy_url=target.server.proxy_url or _proxy(target.server.url))
        return target
    except ValueError as error:
        raise OperatorError(f"kubeconfig: {error}") from None


def read_merged(file: str, environment: Mapping[str, str] = os.environ) -> Document:
    """Return the files merged, {} without any. OperatorError."""
    if file:
        return _read(Path(file).expanduser())
    paths = environment.get("KUBECONFIG", "")
    files = [Path(path) for path in paths.split(os.pathsep) if path]
    if not paths:
        files = [Path(environment.get("HOME") or Path.home()) / ".kube" / "config"]
    document: Document = {}
    for path in files:
        if path.exists():
            _merge(document, _read(path))
    return document


def _read(file: Path) -> Document:
    try:
        text = file.read_bytes().decode()
    except OSError as error:
        raise OperatorError(f"{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise OperatorError(f"{file} is not a kubeconfig: it is not YAML") from None
    document = plain_yaml.read(text)
    document = _read_any_yaml(text, file) if document is None else document
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise OperatorError(f"{file} is not a kubeconfig: it must be a mapping")
    _make_paths_absolute(document, file.resolve().parent)
    return document


def _read_any_yaml(text: str, file: Path) -> Any:
    import yaml  # takes longer than all else that is read here

    try:
        return yaml.load(text, Loader=yaml.CSafeLoader)
    except (yaml.YAMLError, RecursionError):
        raise OperatorError(f"{file} is not a kubeconfig: it is not YAML") from None


def _make_paths_absolute(document: Document, folder: Path) -> None:
    for section, kind, names in (("clusters", "cluster", CLUSTER_FILES), ("users", "user", USER_FILES)):
        for entry in _entries(document, section):
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


def _merge(document: Document, more: Document) -> None:
    """Add to ``document`` the entries of ``more`` whose names it lacks."""
    for name, value in more.items():
        if name in ("clusters", "contexts", "users"):
            entries = _entries(document, name)
            known = {entry.get("name") for entry in entries}
            document[name] = [*entries, *(entry for entry in _entries(more, name) if entry.get("name") not in known)]
        elif not document.get(name):
            document[name] = value


def _entries(document: Mapping[str, Any], section: str) -> list[dict[str, Any]]:
    entries = document.get(section)
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def _target(document: Document, arguments: argparse.Namespace) -> Target | None:
    """Return the target of the current context, None if no server is named. Raises ValueError."""
    name = arguments.context or _text(document, "current-context")
    context = _named(document, "contexts", "context", name) if name else {}
    cluster_name = _text(context, "cluster")
    user_name = _text(context, "user")
    cluster = dict(_named(document, "clusters", "cluster", cluster_name)) if cluster_name else {}
    user = dict(_named(document, "users", "user", user_name)) if user_name else {}
    if arguments.server:
        cluster["server"] = arguments.server
    if arguments.certificate_authority:
        cluster |= {"certificate-authority": arguments.certificate_authority, "certificate-authority-data": ""}
    if arguments.insecure_skip_tls_verify:
        cluster = {"insecure-skip-tls-verify": True} | {
            name: value for name, value in cluster.items() if not name.startswith(("certificate-auth", "insecure"))
        }
    server = _text(cluster, "server")
    if not server:
        return None
    if arguments.token:
        user = {"token": arguments.token}
    if user.get("auth-provider"):
        raise ValueError(f"user {user_name!r}: auth-provider is not supported; use exec, as kubectl does")
    plugin = user.get("exec")
    if plugin is not None and not isinstance(plugin, dict):
        raise ValueError(f"user {user_name!r}: exec must be a mapping")
    found = _server(cluster, user, server)
    if plugin is not None:
        from kubechronicle.http.outgoing.credential_plugins import plugin_of  # few kubeconfigs have one

        found = found.replaced(plugin=plugin_of(plugin, Path(), found.as_cluster(), by_user=True))
    return Target(
        found,
        arguments.namespace or _text(context, "namespace") or "default",
        _impersonation(user, arguments),
        partial(_document_for_kubectl, document, arguments, cluster, user),
    )


def _server(cluster: Mapping[str, Any], user: Mapping[str, Any], server: str) -> RemoteServer:
    token_file = _text(user, "tokenFile")
    return RemoteServer(
        url=server if "://" in server else f"https://{server}",
        http_allowed=True,
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


def _impersonation(user: Mapping[str, Any], arguments: argparse.Namespace) -> tuple[tuple[str, str], ...]:
    name = arguments.__dict__.get("as") or _text(user, "as")
    groups = arguments.as_group or user.get("as-groups") or []
    extra = user.get("as-user-extra") or {}
    headers = [("Impersonate-User", name)] if name else []
    headers += [("Impersonate-Uid", _text(user, "as-uid"))] if _text(user, "as-uid") else []
    headers += [("Impersonate-Group", str(group)) for group in groups]
    headers += [(f"Impersonate-Extra-{key}", str(value)) for key, values in extra.items() for value in values]
    return tuple(headers)


def _document_for_kubectl(
    document: Document, arguments: argparse.Namespace, cluster: Mapping[str, Any], user: Mapping[str, Any]
) -> Document:
    """Return the merged document with the flags applied to its current context."""
    import copy  # only some commands run kubectl

    merged = copy.deepcopy(document)
    name = arguments.context or _text(document, "current-context") or "kubechronicle"
    flags = {"as": arguments.__dict__.get("as"), "as-groups": arguments.as_group}
    user = dict(user) | {key: value for key, value in flags.items() if value}
    context = dict(_named(document, "contexts", "context", name)) if _has(document, "contexts", name) else {}
    context |= {"cluster": f"{name}-cluster", "user": f"{name}-user"}
    if arguments.namespace:
        context["namespace"] = arguments.namespace
    for section, kind, entry_name, value in (
        ("clusters", "cluster", f"{name}-cluster", cluster),
        ("users", "user", f"{name}-user", user),
        ("contexts", "context", name, context),
    ):
        others = [entry for entry in _entries(merged, section) if entry.get("name") != entry_name]
        merged[section] = [*others, {"name": entry_name, kind: dict(value)}]
    return {"apiVersion": "v1", "kind": "Config", **merged, "current-context": name}


def _pod(environment: Mapping[str, str], arguments: argparse.Namespace) -> Target | None:
    """Return the Pod's cluster and service account (rest.InClusterConfig), None outside of Pods."""
    host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", "")
    token, ca = POD_FILES / "token", POD_FILES / "ca.crt"
    if not host or not port or not token.exists():
        return None
    namespace = arguments.namespace
    if not namespace and (POD_FILES / "namespace").exists():
        namespace = (POD_FILES / "namespace").read_text().strip()
    url = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    cluster = {"server": url, "certificate-authority": str(ca)}
    document = partial(_document_for_kubectl, {}, arguments, cluster, {"tokenFile": str(token)})
    headers = _impersonation({}, arguments)
    return Target(RemoteServer(url=url, ca=ca, token_file=token), namespace or "default", headers, document)


def _proxy(url: str) -> str:
    """Return the proxy of the environment (HTTPS_PROXY, NO_PROXY) as net/http does."""
    scheme, _, rest = url.partition("://")
    host = rest.partition("/")[0].rpartition("@")[2]
    if host.startswith(("127.", "localhost", "[::1]")):
        return ""
    from urllib.request import getproxies, proxy_bypass  # takes some milliseconds, which a local server does not need

    return "" if proxy_bypass(host) else getproxies().get(scheme, "")


def _has(document: Mapping[str, Any], section: str, name: str) -> bool:
    return any(entry.get("name") == name for entry in _entries(document, section))


def _named(document: Mapping[str, Any], section: str, kind: str, name: str) -> Mapping[str, Any]:
    """Return the first entry of that name, as clientcmd does. Raises ValueError."""
    for entry in _entries(document, section):
        if entry.get("name") == name:
            value = entry.get(kind) or {}
            if isinstance(value, dict):
                return value
            raise ValueError(f"{kind} {name!r} must be a mapping")
    names = ", ".join(str(entry.get("name")) for entry in _entries(document, section))
    raise ValueError(f"there is no {kind} {name!r}" + (f", only {names}" if names else ""))


def _text(values: Mapping[str, Any], name: str) -> str:
    value = values.get(name)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{name} must be a string")
    return value or ""


def _pem(values: Mapping[str, Any], name: str) -> Pem:
    """Return the PEM or its file. The data has precedence over the file, as in clientcmd."""
    file, data = _text(values, name), _text(values, f"{name}-data")
    if not data:
        return Path(file) if file else None
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"{name}-data is not base64") from None
