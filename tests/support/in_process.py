"""A whole server in one process, on a log in memory, without sockets: for tests of the store and the handlers.

ops/server/composition.py makes the parts and the tree. The listener is left out: requests go to the application.

    async with open_server() as server:
        answer = await server.get("/api/v1/namespaces/default")

Every request is the administrator's unless it has another token ("" for none).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import trio
from certificates import CA
from cryptography.hazmat.primitives.asymmetric import ec
from stalls.checks import CHECKS

from kubechronicle.actors.admission import plugins
from kubechronicle.actors.allocation.ranges import ServiceNetwork
from kubechronicle.actors.loops.server_endpoints import Advertised
from kubechronicle.actors.store import Store
from kubechronicle.actors.supervisor import ChildSpec, Supervisor
from kubechronicle.api.registry.runtime_config import parse, registry_for
from kubechronicle.eventlog.log import RevisionLog
from kubechronicle.eventlog.memory.memory_log import MemoryLog
from kubechronicle.eventlog.memory.store import MemoryStore
from kubechronicle.http.app import HttpSettings
from kubechronicle.http.authentication import jws
from kubechronicle.http.authentication.chain import StaticTokens
from kubechronicle.http.authentication.credentials import ClientCertificates
from kubechronicle.http.authentication.token_issuer import ServiceAccountIssuer
from kubechronicle.http.authentication.user import User
from kubechronicle.http.authorization.current_authorizers import AuthorizationPlan
from kubechronicle.http.list_body import ListBody
from kubechronicle.http.messages import Request, Response
from kubechronicle.http.wire.serve_config import ServeConfig
from kubechronicle.ops.server.assembly import Assembly
from kubechronicle.ops.server.composition import assemble
from kubechronicle.ops.server.databases.units import OtherDatabase
from kubechronicle.ops.server.encryption.encryption import Encryption
from kubechronicle.ops.server.plan import Plan

CLIENT_CA = CA("clients")
ADMIN, JOE = "token-of-admin", "token-of-joe"
USERS = {
    hashlib.sha256(ADMIN.encode()).digest(): User(name="admin", uid="1", groups=("system:masters",)),
    hashlib.sha256(JOE.encode()).digest(): User(name="joe", uid="2", groups=("developers",)),
}
# Virtual seconds: every test that waits runs on an autojump clock.
PATIENCE = 10_000.0
PROTOBUF = "application/vnd.kubernetes.protobuf"


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key == name), "")

    def header_all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key == name]

    def json(self) -> Any:
        return json.loads(self.body)

    def ok(self) -> Any:
        """Return the object of a 2xx answer."""
        assert 200 <= self.status < 300, (self.status, self.body)
        return self.json()

    def refused(self, code: int) -> Any:
        """Return the Status of an answer with this code."""
        assert self.status == code, (self.status, self.body)
        status = self.json()
        assert (status["kind"], status["status"], status["code"]) == ("Status", "Failure", code)
        return status

    def timed_out(self) -> Any:
        """Return the Status of a request that took too long. It has no kind, as kube-apiserver's."""
        assert self.status == 504, (self.status, self.body)
        status = self.json()
        assert "kind" not in status
        assert (status["reason"], status["code"]) == ("Timeout", 504)
        return status


class Stream:
    """The answer of a watch, frame by frame."""

    def __init__(self, response: Response) -> None:
        assert response.status == 200, (response.status, response.body)
        assert not isinstance(response.body, bytes)
        self.response = response
        self.chunks = cast(AsyncGenerator[bytes, None], response.body)
        self._buffer = b""

    async def chunk(self) -> bytes | None:
        """Return the next chunk that is not empty; None at the end."""
        with trio.fail_after(PATIENCE):
            async for chunk in self.chunks:
                if chunk:
                    return chunk
        return None

    async def next(self) -> dict[str, Any] | None:
        """Return the next JSON event; None at the end."""
        while b"\n" not in self._buffer:
            chunk = await self.chunk()
            if chunk is None:
                assert not self._buffer
                return None
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return cast("dict[str, Any]", json.loads(line))

    async def event(self) -> tuple[str, str, int]:
        """Return (type, name, revision) of the next event."""
        event = await self.next()
        assert event is not None, "the watch ended"
        metadata = event["object"].get("metadata", {})
        return event["type"], metadata.get("name", ""), int(metadata.get("resourceVersion") or 0)

    async def rest(self) -> list[dict[str, Any]]:
        """Return all events up to the end of the watch."""
        events = []
        while (event := await self.next()) is not None:
            events.append(event)
        return events


@dataclass(slots=True)
class InProcess:
    assembly: Assembly
    log: MemoryLog
    tree: Supervisor
    nursery: trio.Nursery

    @property
    def store(self) -> Store:
        return self.assembly.store

    def request(
        self,
        method: str,
        target: str,
        body: Any = None,
        *,
        token: str = ADMIN,
        headers: Mapping[str, str] | None = None,
        certificate: bytes | None = None,
    ) -> Request:
        """Return a request. ``body``: sent unchanged if bytes, else as JSON."""
        fields = {"authorization": f"Bearer {token}"} if token else {}
        data = b""
        if body is not None:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            fields["content-type"] = "application/json"
        fields.update(headers or {})
        return Request.of(method, target, headers=fields, body=data, peer_certificate=certificate)

    async def ask(self, method: str, target: str, body: Any = None, **request: Any) -> Answer:
        response = await self.respond(method, target, body, **request)
        content = response.body
        if isinstance(content, ListBody):
            async with aclosing(content) as pieces:
                content = b"".join([piece async for piece in pieces])
            assert len(content) == int(response.header("content-length"))
        assert isinstance(content, bytes), "this is a stream"
        return Answer(response.status, response.headers, content)

    async def respond(self, method: str, target: str, body: Any = None, **request: Any) -> Response:
        answer = self.assembly.application.application(self.request(method, target, body, **request))
        return await CHECKS.timed(answer, f"{method} {target}")

    async def get(self, target: str, **request: Any) -> Any:
        """Return the object of a successful GET."""
        return (await self.ask("GET", target, **request)).ok()

    async def post(self, target: str, body: Any, **request: Any) -> Any:
        return (await self.ask("POST", target, body, **request)).ok()

    async def put(self, target: str, body: Any, **request: Any) -> Any:
        return (await self.ask("PUT", target, body, **request)).ok()

    async def delete(self, target: str, body: Any = None, **request: Any) -> Any:
        return (await self.ask("DELETE", target, body, **request)).ok()

    async def patch(self, target: str, body: Any, kind: str = "merge-patch", **request: Any) -> Any:
        headers = {"content-type": f"application/{kind}+json"}
        return (await self.ask("PATCH", target, body, headers=headers, **request)).ok()

    @asynccontextmanager
    async def watch(self, target: str, **request: Any) -> AsyncIterator[Stream]:
        """Watch the target within the block."""
        stream = Stream(await self.respond("GET", target, **request))
        async with aclosing(stream.chunks):
            yield stream

    async def names(self, target: str) -> list[str]:
        return [item["metadata"]["name"] for item in (await self.get(target))["items"]]

    async def metric(self, name: str, /, **labels: str) -> float | None:
        """Return a sample of /metrics."""
        return self.assembly.application.metrics.registry.get_sample_value(name, labels)


# Tests create namespaces themselves, without the controller that creates service accounts in them.
ADMISSION = plugins.DEFAULT - {"ServiceAccount"}


AUTHORIZATION = AuthorizationPlan()
SERVICES = ServiceNetwork(ranges=("10.96.0.0/16",))
SERVICE_ACCOUNT_KEY = jws.signing_key(ec.generate_private_key(ec.SECP256R1()))
ISSUER_NAME = "https://kubernetes.default.svc.cluster.local"
ISSUER = ServiceAccountIssuer(
    issuers=(ISSUER_NAME,),
    signing=SERVICE_ACCOUNT_KEY,
    verifying=(SERVICE_ACCOUNT_KEY.verifying,),
    audiences=(ISSUER_NAME,),
)


def plan(
    *,
    address: str = "",
    controllers: frozenset[str] = frozenset(),
    root_ca: bytes = b"",
    admission: frozenset[str] = ADMISSION,
    runtime_config: str = "",
    services: ServiceNetwork = SERVICES,
    issuer: ServiceAccountIssuer | None = ISSUER,
    bootstrap_tokens: bool = False,
    authorization: AuthorizationPlan = AUTHORIZATION,
    other: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Plan:
    """Return a plan for a test server.

    ``address``: under which others reach the server. Without one it has no endpoints, so it renews no Lease every ten
    seconds, and a test knows every revision.
    ``other``: fields of the Plan by name, instead of the values here.
    """
    usual = Plan(
        listen=ServeConfig(tls_cert_file="", tls_private_key_file=""),
        advertised=Advertised(address=address or "127.0.0.1", port=6443),
        services=services,
        http=HttpSettings(server_address=f"{address or '10.1.0.1'}:6443", server_version="0.1", **settings),
        authenticators=[ClientCertificates(CLIENT_CA.bundle)],
        static_tokens=[StaticTokens(USERS)],
        issuer=issuer,
        bootstrap_tokens=bootstrap_tokens,
        authorization=authorization,
        controllers=controllers,
        root_ca=root_ca,
        admission_plugins=admission,
        registry=registry_for(parse(runtime_config)),
    )
    return replace(usual, **(other or {}))


def without_listener(assembly: Assembly, *, loops: bool) -> Supervisor:
    """Return the assembly's tree without http, and without the loops unless ``loops``."""
    left_out = {"http"} if loops else {"http", "loops"}
    children: list[ChildSpec] = [child for child in assembly.tree._children if child.name not in left_out]
    return Supervisor("server", children, failures=assembly.tree.failures)


@asynccontextmanager
async def open_server(
    log: RevisionLog | MemoryStore | None = None,
    *,
    loops: bool = False,
    namespaces: tuple[str, ...] = ("default",),
    others: Sequence[OtherDatabase] = (),
    **options: Any,
) -> AsyncIterator[InProcess]:
    """Run a server on the log, or on a new MemoryLog on the store, as another replica. ``others``: further logs.

    Without ``loops``, only ``namespaces`` are created instead of all bootstrap objects, so that a test knows every
    revision.
    """
    memory = MemoryLog(log) if log is None or isinstance(log, MemoryStore) else cast("MemoryLog", log)
    made = plan(**options)
    encryption = Encryption(made.encryption)
    assembly = assemble(memory, made, encryption, others)
    tree = without_listener(assembly, loops=loops)
    async with trio.open_nursery() as nursery:
        await nursery.start(encryption.run)
        await nursery.start(lambda *, task_status: tree.run(task_status=task_status))
        server = InProcess(assembly, memory, tree, nursery)
        if not loops:
            # The server must not wait for loops that do not run.
            own = assembly.own
            own.cluster_ips.ready = own.node_ports.ready = own.bootstrap.has_ranges = own.roles.done = True
            own.trust.ready = own.legacy_tokens.ready = own.flow_control.done = True
            for name in namespaces:
                if assembly.views["namespaces"].get("", name) is None:
                    await server.post("/api/v1/namespaces", {"metadata": {"name": name}})
        yield server
        nursery.cancel_scope.cancel()


def configmap(name: str, namespace: str = "default", *, labels: Mapping[str, str] | None = None, **data: str) -> Any:
    metadata: dict[str, Any] = {"name": name, "namespace": namespace}
    if labels:
        metadata["labels"] = dict(labels)
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def pod(name: str, *, node: str = "", labels: Mapping[str, str] | None = None, **metadata: Any) -> Any:
    """Return a pod. Without ``node`` it is unscheduled, so its deletion is not graceful."""
    spec: dict[str, Any] = {"containers": [{"name": "main", "image": "busybox"}]}
    if node:
        spec["nodeName"] = node
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": dict(labels or {}), **metadata},
        "spec": spec,
    }


MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
