"""A server under attack: its users, and requests to it.

    with our_site() as site:
        site.ask("GET", "/version", user=ANONYMOUS).status

An administrator prepares. The attackers are EDITOR, who may write everything, ALICE, who may do so in the namespace
TENANT alone, NOBODY, who has no binding, and clients without a credential. Each attack has users of its own: a server
runs the rules of users elsewhere whose requests were slow.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, cast
from urllib.parse import urlsplit

from kubechronicle.ops.development.differential import reference
from kubechronicle.ops.development.differential.transport import Target
from kubechronicle.ops.development.hostile.light_client import LightClient, process_seconds

TENANT: Final = "tenant"
TENANTS: Final = "tenants"
"""The group of ALICE."""
ADMIN, EDITOR, ALICE, NOBODY, ANONYMOUS = "admin", "editor", "alice", "nobody", ""
_GROUPS: Final = {EDITOR: "system:masters", ALICE: TENANTS, NOBODY: "others"}
_USERS: Final = "".join(
    f"{user}-{turn},{user}-{turn},{user}-{turn},{group}\n" for user, group in _GROUPS.items() for turn in range(1000)
)
TIMEOUT: Final = 90.0
"""Seconds for an answer: more than kube-apiserver's --request-timeout."""
CHUNK: Final = 1 << 20

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer. ``status``: "closed" or the like without one. ``body``: its beginning."""

    status: str
    body: bytes = b""

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(slots=True)
class Site:
    """``ours``: False for a kube-apiserver. ``prepared``: the results of preparations on this server by their names.

    ``turn``: the number of the attack; it is part of its users' names.
    """

    target: Target
    ours: bool
    turn: int = 0
    prepared: dict[str, Any] = field(default_factory=dict)

    @property
    def address(self) -> tuple[str, int]:
        url = urlsplit(self.target.url)
        return url.hostname or "127.0.0.1", url.port or 443

    def once(self, name: str, prepare: Callable[[], T]) -> T:
        """Return the result of a preparation. It runs once on each server."""
        if name not in self.prepared:
            self.prepared[name] = prepare()
        return cast("T", self.prepared[name])

    def headers(self, user: str) -> dict[str, str]:
        token = self.target.token if user == ADMIN else f"{user}-{self.turn}"
        return {"authorization": f"Bearer {token}"} if user else {}

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        user: str = ADMIN,
        headers: Mapping[str, str] | None = None,
        kept: int = 1 << 22,
    ) -> Reply:
        """Send a request over a connection of its own. ``body``: bytes, or an object to send as JSON.

        ``kept``: bytes of the answer to keep; it is read to its end.
        """
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"content-type": "application/json", "accept": "application/json"} | self.headers(user)
        connection = http.client.HTTPSConnection(
            *self.address, timeout=TIMEOUT, context=ssl._create_unverified_context()
        )
        try:
            connection.request(method, path, data, sent | dict(headers or {}))
            answer = connection.getresponse()
            text = answer.read(kept)
            while answer.read(CHUNK):
                pass
            return Reply(str(answer.status), text)
        except (OSError, http.client.HTTPException) as error:
            return Reply("no answer" if isinstance(error, TimeoutError) else "closed")
        finally:
            connection.close()

    def make(self, path: str, body: Any) -> Reply:
        """Create an object as the administrator. RuntimeError: neither created nor there already."""
        reply = self.ask("POST", path, body)
        if reply.status not in ("201", "409"):
            raise RuntimeError(f"POST {path}: {reply.status} {reply.body[:500]!r}")
        return reply

    def busy_seconds(self) -> float:
        return process_seconds(self.target.pid)

    def light(self) -> LightClient:
        return LightClient(self.target.url, self.target.pid)


def together(count: int, send: Callable[[], str]) -> str:
    """Send from several threads at once. Return how often each answer came."""
    answers: Counter[str] = Counter()
    threads = [threading.Thread(target=lambda: answers.update([send()]), daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return counted(answers)


def counted(answers: Counter[str]) -> str:
    return ", ".join(answer if count == 1 else f"{answer} × {count}" for answer, count in sorted(answers.items()))


def tenant(site: Site) -> None:
    """Create the namespace, and give ALICE every right there. (No controller fills the ClusterRole admin.)"""
    site.make("/api/v1/namespaces", {"metadata": {"name": TENANT}})
    group = "rbac.authorization.k8s.io"
    rules = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    site.make(f"/apis/{group}/v1/namespaces/{TENANT}/roles", {"metadata": {"name": TENANTS}, "rules": rules})
    binding = {
        "metadata": {"name": TENANTS},
        "subjects": [{"kind": "Group", "name": TENANTS, "apiGroup": group}],
        "roleRef": {"kind": "Role", "name": TENANTS, "apiGroup": group},
    }
    site.make(f"/apis/{group}/v1/namespaces/{TENANT}/rolebindings", binding)


@contextlib.contextmanager
def _site(server: Callable[[str], AbstractContextManager[Target]], *, ours: bool) -> Iterator[Site]:
    with server(_USERS) as target:
        site = Site(target, ours)
        tenant(site)
        yield site


def our_site() -> AbstractContextManager[Site]:
    """Run a kubechronicle within the block."""
    return _site(reference.our_server, ours=True)


def reference_site() -> AbstractContextManager[Site]:
    """Run a kube-apiserver within the block. Raises ``reference.Unavailable``."""
    return _site(reference.reference_server, ours=False)
