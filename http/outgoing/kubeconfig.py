"""Kubeconfig files of webhooks: k8s.io/client-go/tools/clientcmd, for the fields of server and credentials.

    current-context: authorizer
    contexts: [{name: authorizer, context: {cluster: there, user: us}}]
    clusters: [{name: there, cluster: {server: https://authz.example/review, certificate-authority: ca.crt}}]
    users: [{name: us, user: {client-certificate: us.crt, client-key: us.key}}]

Relative paths are relative to the file. Unknown fields are ignored, as clientcmd does. A user with ``exec`` has the
credentials that a program issues (credential_plugins.py). A user with ``auth-provider`` is rejected.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Protocol, TypeVar

import yaml

from kubechronicle.api.configuration.structuring import FieldKey, StructureError, structure
from kubechronicle.http.outgoing.credential_plugins import plugin_of
from kubechronicle.http.outgoing.remote_server import Pem, RemoteServer, load_credentials

UNKNOWN_URL: Final = "https://webhook.invalid"
"""The URL of a peer whose address the webhook's configuration gives."""


HTTPS: Final = 443


class KubeconfigError(ValueError):
    """The file can't be used. The message is one line that begins with its path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeconfigCluster:
    server: str = ""
    tls_server_name: Annotated[str, FieldKey("tls-server-name")] = ""
    insecure_skip_tls_verify: Annotated[bool, FieldKey("insecure-skip-tls-verify")] = False
    certificate_authority: Annotated[str, FieldKey("certificate-authority")] = ""
    certificate_authority_data: Annotated[bytes, FieldKey("certificate-authority-data")] = b""
    proxy_url: Annotated[str, FieldKey("proxy-url")] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeconfigUser:
    client_certificate: Annotated[str, FieldKey("client-certificate")] = ""
    client_certificate_data: Annotated[bytes, FieldKey("client-certificate-data")] = b""
    client_key: Annotated[str, FieldKey("client-key")] = ""
    client_key_data: Annotated[bytes, FieldKey("client-key-data")] = b""
    token: str = ""
    token_file: str = ""
    username: str = ""
    password: str = ""
    exec: object = None
    auth_provider: Annotated[object, FieldKey("auth-provider")] = None
    impersonated_user: Annotated[object, FieldKey("as")] = None
    impersonated_uid: Annotated[object, FieldKey("as-uid")] = None
    impersonated_groups: Annotated[object, FieldKey("as-groups")] = None
    impersonated_extra: Annotated[object, FieldKey("as-user-extra")] = None

    def unsupported(self) -> str:
        """Return the first field that is set and not supported, "" for none."""
        fields = {
            "auth-provider": self.auth_provider,
            "as": self.impersonated_user,
            "as-uid": self.impersonated_uid,
            "as-groups": self.impersonated_groups,
            "as-user-extra": self.impersonated_extra,
        }
        return next((name for name, value in fields.items() if value), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeconfigContext:
    cluster: str = ""
    user: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedCluster:
    name: str = ""
    cluster: KubeconfigCluster = KubeconfigCluster()


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedUser:
    name: str = ""
    user: KubeconfigUser = KubeconfigUser()


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedContext:
    name: str = ""
    context: KubeconfigContext = KubeconfigContext()


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The file. clientcmd writes ``kind`` and ``apiVersion``, and reads files without them."""

    kind: Literal["Config"] = "Config"
    api_version: Literal["v1"] = "v1"
    current_context: Annotated[str, FieldKey("current-context")] = ""
    contexts: tuple[NamedContext, ...] = ()
    clusters: tuple[NamedCluster, ...] = ()
    users: tuple[NamedUser, ...] = ()


def read_kubeconfig(path: Path) -> RemoteServer:
    """Return the peer of the current context. Its server may have no TLS, as for client-go.

    All files it names are read once, to see that they can be used. Raises KubeconfigError.
    """
    config = _config(path)
    try:
        peer = _peer(config, path.parent)
        _check(peer)
    except ValueError as error:
        raise KubeconfigError(f"{path}: {error}") from None
    return peer


@dataclass(frozen=True, slots=True)
class WebhookUsers:
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
    config = _config(path)
    anonymous = RemoteServer(url=UNKNOWN_URL)
    users: dict[str, RemoteServer] = {}
    try:
        for entry in config.users:
            if entry.name in users:
                raise ValueError(f"there are two users {entry.name!r}")
            try:
                users[entry.name] = _with_user(anonymous, entry.name, entry.user, path.parent)
                _check(users[entry.name])
            except ValueError as error:
                text = str(error)
                raise ValueError(text if text.startswith("user ") else f"user {entry.name!r}: {text}") from None
    except ValueError as error:
        raise KubeconfigError(f"{path}: {error}") from None
    context = next(
        (each.context for each in config.contexts if each.name == config.current_context), KubeconfigContext()
    )
    return WebhookUsers(users, users.get(context.user, anonymous))


def _check(peer: RemoteServer) -> None:
    """See that the files can be used. Programs run at the first request, as in client-go. ValueError."""
    load_credentials(peer.replaced(plugin=None))


def _config(path: Path) -> Config:
    try:
        return structure(_document(path), Config, file=str(path), unknown_allowed=True)
    except StructureError as error:
        raise KubeconfigError(str(error)) from None
    except ValueError as error:
        raise KubeconfigError(f"{path}: {error}") from None


def _document(path: Path) -> Any:
    try:
        return yaml.safe_load(path.read_bytes())
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark is not None else ""
        raise ValueError(f"is not YAML{where}: {getattr(error, 'problem', None) or 'it cannot be parsed'}") from None


def _peer(config: Config, folder: Path) -> RemoteServer:
    current = config.current_context
    if not current:
        raise ValueError("current-context is not set")
    context = _named(config.contexts, "context", current).context
    cluster = _named(config.clusters, "cluster", context.cluster).cluster
    user = _named(config.users, "user", context.user).user if context.user else KubeconfigUser()
    server = cluster.server
    if not server:
        raise ValueError(f"cluster {context.cluster!r}: server is not set")
    peer = RemoteServer(
        url=server if "://" in server else f"https://{server}",
        ca=_pem("certificate-authority", cluster.certificate_authority, cluster.certificate_authority_data, folder),
        server_name=cluster.tls_server_name,
        insecure=cluster.insecure_skip_tls_verify,
        proxy_url=cluster.proxy_url,
        http_allowed=True,
    )
    return _with_user(peer, context.user, user, folder)


def _with_user(peer: RemoteServer, name: str, user: KubeconfigUser, folder: Path) -> RemoteServer:
    """Return the peer with the credentials of a user. Raises ValueError."""
    if unsupported := user.unsupported():
        raise ValueError(f"user {name!r}: {unsupported} is not supported here")
    plugin = None
    if user.exec is not None:
        if not isinstance(user.exec, Mapping):
            raise ValueError(f"user {name!r}: exec must be an object")
        plugin = plugin_of(user.exec, folder, {} if peer.url == UNKNOWN_URL else peer.as_cluster())
    return peer.replaced(
        plugin=plugin,
        certificate=_pem("client-certificate", user.client_certificate, user.client_certificate_data, folder),
        key=_pem("client-key", user.client_key, user.client_key_data, folder),
        token=user.token,
        token_file=folder / user.token_file if user.token_file else None,
        username=user.username,
        password=user.password,
    )


class _Named(Protocol):
    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=_Named)


def _named(entries: Iterable[N], kind: str, name: str) -> N:
    """Return the first entry of that name, as clientcmd does."""
    entry = next((entry for entry in entries if entry.name == name), None)
    if entry is None:
        raise ValueError(f"there is no {kind} {name!r}")
    return entry


def _pem(name: str, file: str, data: bytes, folder: Path) -> Pem:
    if file and data:
        raise ValueError(f"{name} and {name}-data are both given; one is enough")
    return folder / file if file else data or None
