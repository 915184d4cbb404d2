"""The cost of authentication and authorization: ``python -m kubechronicle.ops.bench.access [--rounds N]``.

Runs in this process without sockets. Requests with client-go's header fields pass the filters ``authenticate`` and
``authorize``, over 1,000 roles and 5,000 bindings in 100 namespaces; one binding grants each user the right. Prints CPU
microseconds of this thread per request, for each filter and for both: the minimum of several rounds, as noise only adds
time.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import orjson
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kubechronicle.api.meta.request_info import Query, resolve
from kubechronicle.api.selectors.field_selectors import describe
from kubechronicle.eventlog.records import Key, Operation, Record
from kubechronicle.eventlog.views.views import Views
from kubechronicle.http import filters
from kubechronicle.http.authentication import jws
from kubechronicle.http.authentication.authorities import Bundle
from kubechronicle.http.authentication.bootstrap_tokens import BootstrapTokens
from kubechronicle.http.authentication.chain import AuthenticationChain, StaticTokens
from kubechronicle.http.authentication.credentials import STANDARD, AuthenticatingProxy, ClientCertificates
from kubechronicle.http.authentication.service_accounts import ServiceAccountTokens
from kubechronicle.http.authentication.token_issuer import ServiceAccountIssuer
from kubechronicle.http.authentication.user import Identified, User
from kubechronicle.http.authentication.webhook import WebhookTokens
from kubechronicle.http.authorization.decision import AuthorizationChain, Privileged
from kubechronicle.http.authorization.node import NodeAuthorizer
from kubechronicle.http.authorization.rbac import GROUP, RbacAuthorizer
from kubechronicle.http.context import Context, Step
from kubechronicle.http.messages import Request, Response
from kubechronicle.http.metrics import Metrics
from kubechronicle.http.outgoing.client import OutgoingClient
from kubechronicle.ops.bench.rules import least

NAMESPACES, ROLES, CLUSTER_ROLES, BINDINGS, CLUSTER_BINDINGS = 100, 800, 200, 4500, 500
ISSUER = "https://kubernetes.default.svc.cluster.local"
ACCOUNT_UID = "9d8f7f7a-8c0f-4bb4-9f9f-0d4c2e3b7a10"
ACCOUNT = f"system:serviceaccount:{'space-042'}:robot"
PATH = "/api/v1/namespaces/space-042/pods/web-0"
DONE = Response(200)

Case = tuple[str, dict[str, str], bytes | None]
"""Name, header fields and certificate (DER) of a request."""


def _space(number: int) -> str:
    return f"space-{number % NAMESPACES:03}"


def _objects() -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    """Yield (resource, namespace, name, object) of the policy, and the account of the service account token."""
    rules = [
        {"apiGroups": [""], "resources": ["pods", "pods/log", "services"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": ["apps"], "resources": ["deployments", "statefulsets"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["settings"], "verbs": ["get", "update"]},
    ]
    for number in range(ROLES):
        yield f"roles.{GROUP}", _space(number), f"role-{number:04}", {"rules": rules}
    for number in range(CLUSTER_ROLES):
        yield f"clusterroles.{GROUP}", "", f"role-{number:04}", {"rules": rules}

    def reference(kind: str, number: int) -> dict[str, str]:
        return {"apiGroup": GROUP, "kind": kind, "name": f"role-{number:04}"}

    for number in range(BINDINGS):
        kind = ("User", "Group", "User")[number % 3]
        subject = {"kind": kind, "name": f"{kind.lower()}-{number // 3:04}", "apiGroup": GROUP}
        binding = {"roleRef": reference("Role", number % ROLES), "subjects": [subject]}
        yield f"rolebindings.{GROUP}", _space(number), f"binding-{number:04}", binding
    for number in range(CLUSTER_BINDINGS):
        subject = {"kind": "Group", "name": f"crowd-{number:04}", "apiGroup": GROUP}
        binding = {"roleRef": reference("ClusterRole", number % CLUSTER_ROLES), "subjects": [subject]}
        yield f"clusterrolebindings.{GROUP}", "", f"binding-{number:04}", binding
    subjects = [{"kind": "User", "name": name, "apiGroup": GROUP} for name in ("jane", ACCOUNT)]
    binding = {"roleRef": reference("ClusterRole", 17), "subjects": subjects}
    yield f"rolebindings.{GROUP}", _space(42), "ours", binding
    yield "serviceaccounts", _space(42), "robot", {"metadata": {"uid": ACCOUNT_UID}}


def policy() -> Views:
    """Return views with the policy."""
    views, records = Views(describe), []
    for revision, (resource, namespace, name, fields) in enumerate(_objects(), start=1):
        metadata = {**fields.pop("metadata", {}), "name": name, **({"namespace": namespace} if namespace else {})}
        body = orjson.dumps({"apiVersion": "v1", "kind": "Object", "metadata": metadata, **fields})
        records.append(
            Record(
                revision=revision,
                key=Key(resource, namespace, name),
                uid=metadata.get("uid", "u"),
                create_revision=revision,
                version=1,
                previous_revision=0,
                operation=Operation.CREATE,
                body=body,
                committed_at=datetime(2026, 1, 1, tzinfo=UTC),
            )
        )
    views.apply(records)
    return views


class Authority:
    """A certificate authority that issues client certificates."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = name
        self.bundle = Bundle.of(self._sign(name, authority=True).public_bytes(Encoding.PEM))

    def current(self) -> Bundle:
        return self.bundle

    def client(self, user: str) -> bytes:
        return self._sign(user, authority=False).public_bytes(Encoding.DER)

    def _sign(self, subject: str, *, authority: bool) -> x509.Certificate:
        now = datetime.now(UTC)

        def name(text: str) -> x509.Name:
            return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

        builder = (
            x509.CertificateBuilder()
            .subject_name(name(subject))
            .issuer_name(name(self._name))
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(hours=1))
            .add_extension(x509.BasicConstraints(authority, None), critical=True)
        )
        if not authority:
            builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        return builder.sign(self._key, hashes.SHA256())


def prepare() -> tuple[filters.Services, list[Case]]:
    """Return the filters' services, and requests that are authenticated and allowed."""
    views, clients, proxies = policy(), Authority("clients"), Authority("proxies")
    key = jws.signing_key(ec.generate_private_key(ec.SECP256R1()))
    issuer = ServiceAccountIssuer(issuers=(ISSUER,), signing=key, verifying=(key.verifying,), audiences=(ISSUER,))
    listed = {hashlib.sha256(b"a-static-token").digest(): User(name="jane", uid="1", groups=("developers",))}
    now = int(time.time())
    claims = {
        "iss": ISSUER,
        "aud": [ISSUER],
        "sub": ACCOUNT,
        "exp": now + 3600,
        "iat": now,
        "nbf": now,
        "jti": "one",
        "kubernetes.io": {"namespace": _space(42), "serviceaccount": {"name": "robot", "uid": ACCOUNT_UID}},
    }
    foreign = key.sign({**claims, "iss": "https://login.example.com", "sub": "jane"})
    webhook = WebhookTokens(cast(OutgoingClient, None), ttl=3600)  # its cache has the answer
    webhook.cache.keep(webhook.cache.key(foreign, issuer.audiences), Identified(User(name="jane"), issuer.audiences))
    authentication = AuthenticationChain(
        [AuthenticatingProxy(proxies.current, STANDARD), ClientCertificates(clients.current)],
        [
            StaticTokens(listed),
            ServiceAccountTokens(issuer, views),
            BootstrapTokens(views),
            webhook,
        ],
        audiences=issuer.audiences,
    )
    services = filters.Services(
        metrics=Metrics(),
        authentication=authentication,
        authorization=AuthorizationChain([Privileged(), NodeAuthorizer(views), RbacAuthorizer(views)]),
        is_served=lambda info: True,
    )

    def bearer(token: str) -> dict[str, str]:
        return {"authorization": f"Bearer {token}"}

    proxied = {"x-remote-user": "jane", "x-remote-group": "developers"}
    return services, [
        ("certificate", {}, clients.client("jane")),
        ("authenticating proxy", proxied, proxies.client("front")),
        ("token of the file", bearer("a-static-token"), None),
        ("service account token", bearer(key.sign(claims)), None),
        ("cached token", bearer(foreign), None),
    ]


def request_of(case: Case) -> Request:
    """Return the request as it is after the filter ``outermost``."""
    _, fields, certificate = case
    sent = {
        "host": "127.0.0.1:6443",
        "user-agent": "kubectl/v1.36.0 (linux/amd64) kubernetes/0123456",
        "accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
        "accept-encoding": "gzip",
        "content-type": "application/json",
        "kubectl-command": "kubectl get",
        "kubectl-session": ACCOUNT_UID,
        **fields,
    }
    request = Request.of("GET", PATH, headers=sent, peer_certificate=certificate)
    query = Query("")
    info = resolve("GET", PATH, query)
    request.attach(Context(info=info, query=query, audit_id="a", deadline=float("inf"), received=0.0))
    return request


async def _handler(request: Request, context: Context) -> Response:
    return DONE


def _run(application: Step) -> Callable[[Request], None]:
    """Return a function that runs the application. It raises RuntimeError if the application waits or rejects."""

    def run(request: Request) -> None:
        try:
            application(request, request.attached(Context)).__await__().__next__()
        except StopIteration as done:
            if done.value is DONE:
                return
        raise RuntimeError("a request of the benchmark was not answered at once")

    return run


def measure(services: filters.Services, case: Case, rounds: int) -> dict[str, float]:
    """Return microseconds by filter, without the call of the handler."""
    authenticated = _run(filters.authenticate(services, _handler))
    authorized = _run(filters.authorize(services, _handler))
    both = _run(filters.authenticate(services, filters.authorize(services, _handler)))

    def authenticated_request() -> Request:
        request = request_of(case)
        authenticated(request)
        return request

    def new_request() -> Request:
        return request_of(case)

    call = least(_run(_handler), new_request, rounds)
    return {
        "authentication": least(authenticated, new_request, rounds) - call,
        "authorization": least(authorized, authenticated_request, rounds) - call,
        "both": least(both, new_request, rounds) - call,
    }


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m kubechronicle.ops.bench.access", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="of 200 requests; the minimum counts (default 15)")
    rounds = parser.parse_args(argv).rounds
    services, cases = prepare()
    for case in cases:
        steps = measure(services, case, rounds)
        print(f"{case[0]}: " + ", ".join(f"{name} {us:.1f} µs" for name, us in steps.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
