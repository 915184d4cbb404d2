"""Server and user from kubeconfig files and flags, as kubectl reads them (k8s.io/client-go/tools/clientcmd).

    KUBECONFIG=a:b        the files are merged; the first entry of each name and the first current-context win
    --kubeconfig FILE     this file alone
    neither               ~/.kube/config; in a Pod without that file, the Pod's service account

The rules of one file are in http/outgoing/kubeconfig.py.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from kubechronicle.http.outgoing.kubeconfig import Document, KubeconfigError, named, read_document, server_of
from kubechronicle.http.outgoing.remote_server import RemoteServer
from kubechronicle.ops.errors import OperatorError

HOW_TO_NAME: Final = "name it with KUBECONFIG, --kubeconfig FILE or --server URL"
POD_FILES: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class ClusterTarget:
    """The server of the current context, the namespace, and the user.

    ``headers``: the impersonation headers
    ``document``: returns all files merged, for kubectl, with absolute paths
    ``source``: the archive that the server answers about, "" for its own log (session.py)
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


def of_file(file: Path, namespace: str = "", user: str = "") -> ClusterTarget:
    """Return the target of one file, for programs without flags. ``user``: impersonate this one. OperatorError."""
    parser = argparse.ArgumentParser()
    add_flags(parser)
    return load(parser.parse_args([f"--kubeconfig={file}", f"--namespace={namespace}", f"--as={user}"]), {})


def load(arguments: argparse.Namespace, environment: Mapping[str, str] = os.environ) -> ClusterTarget:
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
        return read_document(file)
    except KubeconfigError as error:
        raise OperatorError(str(error)) from None


def _merge(document: Document, more: Document) -> None:
    """Add to ``document`` the entries of ``more`` whose names it lacks."""
    for name, value in more.items():
        if name in ("clusters", "contexts", "users"):
            entries = document.get(name) or []
            known = {entry.get("name") for entry in entries}
            document[name] = [*entries, *(entry for entry in value or () if entry.get("name") not in known)]
        elif not document.get(name):
            document[name] = value


def _target(document: Document, arguments: argparse.Namespace) -> ClusterTarget | None:
    """Return the target of the current context, None if no server is named. Raises ValueError."""
    name = arguments.context or document.get("current-context")
    context = named(document, "contexts", name) if name else {}
    cluster_name, user_name = context.get("cluster") or "", context.get("user") or ""
    cluster = dict(named(document, "clusters", cluster_name)) if cluster_name else {}
    user = dict(named(document, "users", user_name)) if user_name else {}
    if arguments.server:
        cluster["server"] = arguments.server
    if arguments.certificate_authority:
        cluster |= {"certificate-authority": arguments.certificate_authority, "certificate-authority-data": ""}
    if arguments.insecure_skip_tls_verify:
        cluster = {"insecure-skip-tls-verify": True} | {
            name: value for name, value in cluster.items() if not name.startswith(("certificate-auth", "insecure"))
        }
    if not cluster.get("server"):
        return None
    if arguments.token:
        user = {"token": arguments.token}
    return ClusterTarget(
        server_of(cluster, user, user_name, by_user=True),
        arguments.namespace or context.get("namespace") or "default",
        _impersonation(user, arguments),
        partial(_document_for_kubectl, document, arguments, cluster, user),
    )


def _impersonation(user: Mapping[str, Any], arguments: argparse.Namespace) -> tuple[tuple[str, str], ...]:
    name = arguments.__dict__.get("as") or user.get("as")
    groups = arguments.as_group or user.get("as-groups") or []
    extra = user.get("as-user-extra") or {}
    headers = [("Impersonate-User", name)] if name else []
    headers += [("Impersonate-Uid", user["as-uid"])] if user.get("as-uid") else []
    headers += [("Impersonate-Group", str(group)) for group in groups]
    headers += [(f"Impersonate-Extra-{key}", str(value)) for key, values in extra.items() for value in values]
    return tuple(headers)


def _document_for_kubectl(
    document: Document, arguments: argparse.Namespace, cluster: Mapping[str, Any], user: Mapping[str, Any]
) -> Document:
    """Return the merged document with the flags applied to its current context."""
    import copy  # only some commands run kubectl

    merged = copy.deepcopy(document)
    name = arguments.context or document.get("current-context") or "kubechronicle"
    flags = {"as": arguments.__dict__.get("as"), "as-groups": arguments.as_group}
    user = dict(user) | {key: value for key, value in flags.items() if value}
    known = any(entry.get("name") == name for entry in document.get("contexts") or ())
    context = dict(named(document, "contexts", name)) if known else {}
    context |= {"cluster": f"{name}-cluster", "user": f"{name}-user"}
    if arguments.namespace:
        context["namespace"] = arguments.namespace
    for section, kind, entry_name, value in (
        ("clusters", "cluster", f"{name}-cluster", cluster),
        ("users", "user", f"{name}-user", user),
        ("contexts", "context", name, context),
    ):
        others = [entry for entry in merged.get(section) or () if entry.get("name") != entry_name]
        merged[section] = [*others, {"name": entry_name, kind: dict(value)}]
    return {"apiVersion": "v1", "kind": "Config", **merged, "current-context": name}


def _pod(environment: Mapping[str, str], arguments: argparse.Namespace) -> ClusterTarget | None:
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
    return ClusterTarget(RemoteServer(url=url, ca=ca, token_file=token), namespace or "default", headers, document)


def _proxy(url: str) -> str:
    """Return the proxy of the environment (HTTPS_PROXY, NO_PROXY) as net/http does."""
    scheme, _, rest = url.partition("://")
    host = rest.partition("/")[0].rpartition("@")[2]
    if host.startswith(("127.", "localhost", "[::1]")):
        return ""
    from urllib.request import getproxies, proxy_bypass  # takes some milliseconds, which a local server does not need

    return "" if proxy_bypass(host) else getproxies().get(scheme, "")
