"""Service account tokens for tests: the account ``robot`` of the namespace default, and its tokens."""

from __future__ import annotations

from typing import Any

from in_process import SERVICE_ACCOUNT_KEY, InProcess, pod

from kubechronicle.http.authentication import jws

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
SECRETS = "/api/v1/namespaces/default/secrets"
SELF = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
NAME = "system:serviceaccount:default:robot"
KIND = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}


async def request_token(
    server: InProcess, spec: Any = None, *, account: str = "robot", query: str = "", **body: Any
) -> Any:
    request = {**KIND, "spec": spec or {}, **body}
    return await server.ask("POST", f"{ACCOUNTS}/{account}/token{query}", request)


async def robot(server: InProcess, name: str = "robot") -> str:
    """Create a service account. Return its uid."""
    made = await server.post(ACCOUNTS, {"metadata": {"name": name}})
    return str(made["metadata"]["uid"])


async def token_of(server: InProcess, spec: Any = None) -> str:
    return str((await request_token(server, spec)).ok()["status"]["token"])


def bound_to(kind: str, name: str, **reference: Any) -> dict[str, Any]:
    return {"boundObjectRef": {"kind": kind, "apiVersion": "v1", "name": name, **reference}}


def claims_of(token: str) -> dict[str, Any]:
    return jws.parse(token).claims


def signed(changes: dict[str, Any], like: str, key: jws.SigningKey = SERVICE_ACCOUNT_KEY) -> str:
    """Return a copy of the token ``like`` with changed claims (None: removed), signed with the key."""
    claims = {**claims_of(like), **changes}
    return key.sign({name: value for name, value in claims.items() if value is not None})


async def is_authenticated(server: InProcess, token: str) -> bool:
    """Return True if the token is accepted. Assert that a rejection has no details."""
    answer = await server.ask("GET", "/api/v1/nodes", token=token)
    if answer.status != 401:
        assert answer.refused(403)["message"].startswith(f'nodes is forbidden: User "{NAME}"')
        return True
    assert answer.refused(401) == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "Unauthorized",
        "reason": "Unauthorized",
        "code": 401,
    }
    return False


def pod_of_robot(**options: Any) -> Any:
    made = pod("p", **options)
    made["spec"]["serviceAccountName"] = "robot"
    return made
