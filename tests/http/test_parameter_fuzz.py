"""Odd query parameters, headers, tokens and paths of every verb: none makes a 5xx or a traceback.

FUZZ_REQUESTS is the number of requests (by default a few thousand), FUZZ_SEED the beginning of the random numbers:

    FUZZ_REQUESTS=100000 .venv/bin/python -m pytest -q tests/http/test_parameter_fuzz.py

A request may be answered 503 or 504. kube-apiserver answers 500 to a get or a watch whose resourceVersion is no number,
to a Service if no address is left, to a binding without a target, and to a health check that fails. The same goes for a
path whose kind and namespace it cannot tell. So these are allowed, too.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any
from urllib.parse import quote, quote_from_bytes

import pytest
import trio
from in_process import ADMIN, JOE, InProcess, configmap, open_server, pod

from kubechronicle.http.list_body import ListBody
from kubechronicle.http.messages import Headers, Request, Response

REQUESTS = int(os.environ.get("FUZZ_REQUESTS", "3000"))
SEED = int(os.environ.get("FUZZ_SEED", "13"))
SCRAPES = REQUESTS // 1000  # of /metrics: with the series of all former requests, one costs as much as hundreds of them

KUBERNETES_500 = (
    b"resourceVersion: Invalid value: ",
    b"failed to allocate a serviceIP: range is full",
    b"target.name: Required value",
    b"z check failed",
    b"failed to create RequestInfo: unable to determine kind and namespace from url",
)

# -- values -----------------------------------------------------------------------------------------------------------

NUMBERS = (
    *("", "0", "1", "2", "-1", "-5", "+1", " 1", "1 ", "1.5", "1e3", "0x10", "1_0", "²", "٣", "-", "+", "NaN", "inf"),
    *("9" * 5000, "0" * 5000 + "1", "-" + "9" * 5000, str(2**63), str(2**63 - 1), str(-(2**63)), str(2**64), "1e400"),
)
WORDS = ("true", "false", "True", "x", "All", "Strict", "Ignore", "Foreground", "Orphan", "Exact", "NotOlderThan", "m")
TEXTS = (
    *("a/b", "..", ".", "~", "a\0b", "\0", "\r\n", "\x1b[31m", "é", "\U0001f600", "a" * 3000, "'", '"', "\\", "%", ";"),
    *("a b", "[", "{}", "null", "&", "=", "==", ",", "<script>", "*", "-", "\u202e", "\ufffd"),
)
RAW = (b"\xff", b"\xed\xa0\x80", b"a\xc3", b"\xc0\x80", b"\xf4\x90\x80\x80")
SELECTORS = (
    *(
        "a",
        "!a",
        "a=b",
        "a==b",
        "a!=b",
        "a in (b,c)",
        "a notin (b)",
        "a in (",
        "a in ()",
        "a>1",
        "a<x",
        "a>" + "9" * 5000,
    ),
    *("metadata.name=x", "metadata.name!=x", "metadata.namespace=default", "spec.nodeName=n", "status.phase=Running"),
    *("metadata.name=\0", "metadata.name=²", "metadata.name=a\\,b", "metadata.name=\\", ",".join(["!a"] * 500)),
    *("revision.from=²", "revision.to=-1", "revision.from=" + "9" * 5000, "time.from=1h", "time.to=x", "time.from=\0"),
    *("time.from=9999-12-31T23:59:59Z", "time.to=0001-01-01T00:00:00Z", "time.from=99999999999d", "operation=Create"),
    *(
        "operation=x",
        "object.kind=Pod",
        "object.kind=\0",
        "who.username=\0",
        "who.username=a*",
        "changed=spec.replicas",
    ),
    *("changed=\0", "object.name=*", "request.auditID=\ufffd", ",".join(["who.username!=a"] * 500)),
)
MOMENTS = (
    "1",
    "0",
    "-1",
    "2",
    "²",
    "9" * 30,
    "-1h",
    "-2d",
    "now",
    "1h",
    "2026-01-01T00:00:00Z",
    "0001-01-01",
    "\0",
    "x",
)
ACCEPTS = (
    *("", "*/*", "application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "text/html", "a", "/"),
    *("application/json;q=²", "application/json;q=nan", "application/json;q=1e999", "application/json;pretty=1"),
    *("*", "*/*;q=0.1,application/json;q=-1", "application/*", ";", ",", ",,,;;;", "application/json;stream=watch"),
    *(
        "application/json;as=Table;v=v1;g=meta.k8s.io",
        "application/json;as=Table;v=v2;g=x",
        "application/yaml;as=Table",
    ),
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadataList;v=v1beta1;g=meta.k8s.io",
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
    ",".join(f"a/{number}" for number in range(500)),
)
CONTENT_TYPES = (
    *("application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "", "a", "text/plain", "\xff"),
    *("application/merge-patch+json", "application/json-patch+json", "application/strategic-merge-patch+json"),
    *(
        "application/apply-patch+yaml",
        "application/apply-patch+cbor",
        "application/json; charset=x",
        "application/json;",
    ),
)
BODIES: tuple[bytes, ...] = (
    *(
        b"",
        b"{}",
        b"[]",
        b"null",
        b"1",
        b"x",
        b"\xff",
        b"k8s\0",
        b"k8s\0\x0a",
        b"- a\n",
        b"a: b\n",
        b"{",
        b'"a"',
        b"\0",
    ),
    b'{"metadata":{"name":"fuzz"}}',
    b'{"metadata":{"generateName":"fuzz-"}}',
    b'[{"op":"add","path":"/metadata/labels/a","value":"b"}]',
    b'{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":-1,"preconditions":{"resourceVersion":"\\u0000"}}',
    b'{"spec":{}}',
    b'{"spec":{"token":"\\ud800"}}',
    b'{"spec":{"resourceAttributes":{"verb":"get","fieldSelector":{"rawSelector":"a=\\u0000"}}}}',
)


def token(rng: random.Random) -> str:
    """Return a continue token: whole, odd, or cut."""
    start = rng.choice(
        ("a\0", "default/a\0", "", "/", "..", "a//b", "\0", "a\0b\0", "²\0", "default/²", "é", "a" * 500, 1, None)
    )
    revision = rng.choice((-1, 1, 5, 0, -7, 10**9, 2**63, 2**70, 1.5, "1", None, True, "²"))
    text = json.dumps({"v": rng.choice(("meta.k8s.io/v1", "v2", None, 1)), "rv": revision, "start": start})
    if rng.random() < 0.2:
        text = rng.choice(("[]", "null", "1", text[:-3], text.replace("a", "\\ud800"), "\0", text * 2))
    encoded = base64.urlsafe_b64encode(text.encode()).decode()
    return rng.choice((encoded.rstrip("="), encoded, encoded[:7], encoded.replace("A", "²"), encoded + "\0"))


VALUES: dict[str, tuple[Sequence[str], ...]] = {
    "limit": (NUMBERS,),
    "timeoutSeconds": (NUMBERS,),
    "gracePeriodSeconds": (NUMBERS,),
    "resourceVersion": (NUMBERS,),
    "timeout": (NUMBERS, ("1s", "1ns", "-1s", "9999999h", "1.5h3m", "1µs")),
    "labelSelector": (SELECTORS,),
    "fieldSelector": (SELECTORS,),
    "watch": (WORDS, NUMBERS),
    "allowWatchBookmarks": (WORDS,),
    "sendInitialEvents": (WORDS,),
    "resourceVersionMatch": (WORDS,),
    "continue": (),
    "dryRun": (WORDS,),
    "fieldManager": (WORDS,),
    "fieldValidation": (WORDS,),
    "force": (WORDS,),
    "propagationPolicy": (WORDS,),
    "orphanDependents": (WORDS,),
    "ignoreStoreReadErrorWithClusterBreakingPotential": (WORDS,),
    "pretty": (WORDS, NUMBERS),
    "includeObject": (("None", "Metadata", "Object"),),
    "content": (("diff", "full"),),
    "order": (("oldest", "newest"),),
    "summary": (("density",),),
    "bucket": (("1s", "1h", "0s", "99999999999d", "1ms"), NUMBERS),
    "by": (("resource", "user", "namespace", "operation"),),
    "include": (("clusterrevisions",),),
    "until": (MOMENTS,),
    "speed": (NUMBERS,),
    "verbose": (WORDS,),
    "exclude": (("ping", "log"),),
    "hash": (WORDS,),
}
HEADERS: dict[str, tuple[Sequence[str], ...]] = {
    "accept": (ACCEPTS,),
    "content-type": (CONTENT_TYPES,),
    "accept-encoding": (("gzip", "gzip;q=0", "identity", "gzip;q=²", ",", "br,gzip;q=1"),),
    "authorization": (
        (f"Bearer {JOE}", "Bearer", "Bearer  x", "Basic eDp5", "Negotiate", "x", "Bearer ²", "Bearer a.b.c"),
    ),
    "impersonate-user": (("joe", "system:serviceaccount:default:a", "system:node:n", "system:anonymous", "jos\xe9"),),
    "impersonate-group": (("g", "system:masters", "system:unauthenticated"),),
    "impersonate-uid": (("1",),),
    "impersonate-extra-a%2fb": (("1",),),
    "impersonate-extra-": (("1",),),
    "impersonate-extra-%zz": (("1",),),
    "x-remote-user": (("joe",),),
    "user-agent": (("kubectl/v1.36", "curl/8", "/", "é", "\0", "a" * 600),),
    "audit-id": (("1", "a" * 600, "é"),),
    "if-none-match": (("*", '"x"', "W/"),),
    "if-match": (("*",),),
    "range": (("bytes=0-1",),),
    "content-length": (("0", "²", "-1"),),
    "origin": (("https://x",),),
    "x-http-method-override": (("DELETE",),),
    "traceparent": (("00-0-0-0",),),
    "warning": (('299 - "x"',),),
}
METHODS = (
    ("GET",) * 12 + ("POST",) * 4 + ("PATCH",) * 4 + ("PUT", "PUT", "DELETE", "DELETE", "HEAD", "OPTIONS", "TRACE")
)
DOCUMENTS = (
    *("/", "/api", "/apis", "/api/v1", "/apis/apps", "/apis/apps/v1", "/version", "/healthz", "/livez/ping", "/readyz"),
    *("/openapi/v2", "/openapi/v3", "/openapi/v3/apis/apps/v1", "/openapi/v3/api/v1", "/metrics", "/openid/v1/jwks"),
    *("/.well-known/openid-configuration", "/ui", "/history/at/", "/history/at/1", "/healthz/x", "/api/v1/watch", "/x"),
)
NAMES = (
    "a",
    "default",
    "x",
    "²",
    "1",
    "..",
    ".",
    "a:b",
    "a%00",
    "%ff",
    "%ed%a0%80",
    "A",
    "-",
    "~",
    "%2f",
    "a" * 300,
    "%zz",
)


class Fuzz:
    """Random requests for a server's resources."""

    def __init__(self, rng: random.Random, server: InProcess) -> None:
        self.rng = rng
        self.types = list(server.store.registry)
        self.scrapes = 0

    def value(self, pools: tuple[Sequence[str], ...]) -> str:
        """Return a percent-encoded value: mostly of its own pools, else any."""
        roll = self.rng.random()
        if roll < 0.08:
            return quote_from_bytes(self.rng.choice(RAW))
        if not pools or roll < 0.25:
            pools = (TEXTS, NUMBERS, WORDS, SELECTORS)
        chosen = self.rng.choice(self.rng.choice(pools))
        return quote(chosen, safe=self.rng.choice(("", "/=,!()", " %;\\")))

    def query(self, method: str) -> str:
        pairs = ["dryRun=All"] if method == "DELETE" else []
        for _ in range(min(int(self.rng.expovariate(0.5)), 6)):
            name = self.rng.choice(tuple(VALUES))
            value = token(self.rng) if name == "continue" and self.rng.random() < 0.9 else self.value(VALUES[name])
            pairs.append(f"{name}={value}" if self.rng.random() < 0.95 else name)
        return "&".join(pairs)

    def path(self) -> str:
        rng = self.rng
        if rng.random() < 0.12:
            document = rng.choice(DOCUMENTS)
            self.scrapes += document == "/metrics"
            return document if document != "/metrics" or self.scrapes <= SCRAPES else "/version"
        rt = rng.choice(self.types)
        parts = ["api", rt.version] if not rt.group else ["apis", rt.group, rt.version]
        if rng.random() < 0.05:
            parts.append(rng.choice(("watch", "proxy")))
        if rng.random() < (0.8 if rt.namespaced else 0.1):
            parts += ["namespaces", rng.choice(NAMES) if rng.random() < 0.15 else "default"]
        parts.append(rt.plural)
        if rng.random() < 0.5:
            parts.append(rng.choice(NAMES) if rng.random() < 0.5 else "a")
            if rng.random() < 0.4:
                parts.append(rng.choice((*rt.subresources, "status", "scale", "x", rng.choice(NAMES))))
        prefix = f"/history/at/{quote(rng.choice(MOMENTS))}" if rng.random() < 0.12 else ""
        return prefix + "/" + "/".join(parts)

    def headers(self) -> list[tuple[str, str]]:
        fields = [("authorization", f"Bearer {ADMIN}")] if self.rng.random() < 0.95 else []
        for _ in range(min(int(self.rng.expovariate(0.8)), 4)):
            name = self.rng.choice(tuple(HEADERS))
            pool = self.rng.choice(HEADERS[name]) if self.rng.random() < 0.9 else TEXTS
            fields.insert(0, (name, self.rng.choice(pool).encode().decode("latin-1")))
        return fields

    def request(self) -> Request:
        method = self.rng.choice(METHODS)
        query = self.query(method)
        target = self.path() + (f"?{query}" if query else "")
        body = self.rng.choice(BODIES) if method in ("POST", "PUT", "PATCH", "DELETE") else b""
        return Request.of(method, target, headers=self.headers(), body=body)


def shown(request: Request) -> str:
    return f"{request.method} {request.raw_path}?{request.query_string} {list(Headers(list(request.headers)))}"[:2000]


async def answered(server: InProcess, request: Request) -> tuple[int, bytes]:
    """Return the code and the beginning of the body. A stream is read for a second of virtual time."""
    response: Response = await server.assembly.application.application(request)
    body = response.body
    if isinstance(body, bytes):
        return response.status, body
    if isinstance(body, ListBody):
        return response.status, b"".join([piece async for piece in body])[:1000]
    start = b""
    async with aclosing(body) as chunks:  # type: ignore[type-var]
        with trio.move_on_after(1):
            async for chunk in chunks:
                start += chunk
                if len(start) > 1000:
                    break
    return response.status, start


def is_legitimate(code: int, body: bytes) -> bool:
    if code < 500 or code in (503, 504):
        return True
    return code == 500 and any(text in body for text in KUBERNETES_500)


@pytest.fixture
async def server(autojump_clock: Any) -> AsyncIterator[InProcess]:
    async with open_server(namespaces=("default",)) as server:
        await server.post("/api/v1/namespaces/default/pods", pod("a"))
        for name in ("a", "b", "c"):
            await server.post("/api/v1/namespaces/default/configmaps", configmap(name))
        await server.post("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "a"}})
        await server.post("/api/v1/nodes", {"metadata": {"name": "a"}})
        yield server


async def test_odd_parameters(server: InProcess, caplog: pytest.LogCaptureFixture) -> None:
    fuzz = Fuzz(random.Random(SEED), server)
    caplog.set_level(logging.ERROR)
    failures: list[str] = []
    for _ in range(REQUESTS):
        request = fuzz.request()
        line = shown(request)
        code, body = await answered(server, request)
        if not is_legitimate(code, body):
            failures.append(f"{code} {line}\n    {body[:300]!r}")
        failures += [f"logged {record.getMessage()} {record.exc_text or ''}: {line}" for record in caplog.records]
        caplog.clear()
        if len(failures) >= 20:
            break
    assert not failures, "\n".join(failures)
