"""Headers, queries and paths of n and of 2n parts: the time grows in proportion.

Measured in processor time, without the garbage collector, as the least of several requests, so that a busy machine does
not matter. Times too short to compare pass.
"""

from __future__ import annotations

import base64
import gc
import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from in_process import ADMIN, InProcess, open_server, pod

from kubechronicle.http.messages import Request
from kubechronicle.http.wire.serve_config import ServeLimits

GROWTH = 2.6
# Seconds of 2n parts, below which a request is fast in any case.
SHORT = 0.004
BYTES = ServeLimits().header_bytes // 8
JSON = "application/json"
PODS = "/api/v1/pods"
POST = "/api/v1/namespaces/default/pods"

Case = Callable[[int], tuple[str, list[tuple[str, str]]]]


def field(name: str, part: str, *, separator: str = ",", after: str = "", before: str = "", path: str = PODS) -> Case:
    """Return a case of one header field. ``part``: with {} for the number of the part."""
    return lambda n: (path, [(name, before + separator.join(part.format(each) for each in range(n)) + after)])


def fields(name: str, value: str, *others: tuple[str, str]) -> Case:
    return lambda n: (PODS, [*others, *((name.format(each), value.format(each)) for each in range(n))])


def query(part: str, *, separator: str = ",", before: str = "", after: str = "", path: str = PODS) -> Case:
    return lambda n: (path + "?" + before + separator.join(part.format(each) for each in range(n)) + after, [])


def path(part: str, *, before: str = "", after: str = "") -> Case:
    return lambda n: (before + part * n + after, [])


JOE = ("impersonate-user", "joe")
CASES: dict[str, Case] = {
    "Accept, unknown types": field("accept", "a/{}", after=f",{JSON}"),
    "Accept, nothing acceptable": field("accept", "a/{}"),
    "Accept, one clause repeated": field("accept", "*/*;q=0.1"),
    "Accept, JSON": field("accept", JSON + ";a={}"),
    "Accept, tables": field("accept", JSON + ";as=Table;v=v{};g=x", after=f",{JSON}"),
    "Accept, parameters": field("accept", ";a{}=b", separator="", before=JSON),
    "Accept of discovery": field("accept", "a/{}", after=f",{JSON}", path="/apis"),
    "Accept of OpenAPI": field("accept", "a/{}", after=f",{JSON}", path="/openapi/v3"),
    "Accept-Encoding": field("accept-encoding", "a{};q=0"),
    "Authorization": field("authorization", "a.", separator="", before="Bearer "),
    "Impersonate-Group": fields("impersonate-group", "g{}", JOE),
    "Impersonate-Extra, keys": fields("impersonate-extra-k{}", "v", JOE),
    "Impersonate-Extra, values": fields("impersonate-extra-k", "v{}", JOE),
    "any fields": fields("x-{}", "v"),
    "If-None-Match": field("if-none-match", '"{}"', path="/openapi/v3"),
    "pairs": query("a{}=b", separator="&"),
    "pairs of one name": query("limit=1", separator="&"),
    "pairs that are dropped": query("a{}=%zz", separator="&"),
    "absent labels": query("!a{}", before="labelSelector="),
    "equal labels": query("a{}=b", before="labelSelector="),
    "unequal labels": query("a!=b{}", before="labelSelector="),
    "a set of labels": query("b{}", before="labelSelector=a+in+(", after=")"),
    "many sets of labels": query("a+notin+(b{})", before="labelSelector="),
    "compared labels": query("a>{}", before="labelSelector="),
    "labels that do not parse": query("(", separator="", before="labelSelector="),
    "invalid values of labels": query("-{}", before="labelSelector=a+in+(", after=")"),
    "unequal fields": query("metadata.name!=b{}", before="fieldSelector="),
    "equal fields": query("metadata.name=a", before="fieldSelector="),
    "escaped fields": query("%5C,", separator="", before="fieldSelector=metadata.name="),
    "unknown fields": query("x{}=b", before="fieldSelector="),
    "fields of revisions": query(
        "who.username!=b{}", before="fieldSelector=", path="/apis/history.kubechronicle.dev/v1/revisions"
    ),
    "continue": query("e", separator="", before="continue="),
    "continue, nested": lambda n: (f"{PODS}?continue={base64.urlsafe_b64encode(b'[' * n).decode()}", []),
    "limit": query("9", separator="", before="limit="),
    "resourceVersion": query("9", separator="", before="resourceVersion="),
    "timeout": query("1s", separator="", before="timeout="),
    "exclude": query("exclude=a{}", separator="&", path="/healthz"),
    "path": path("a/", before="/api/v1/"),
    "slashes": path("/", before="/api/v1", after="pods"),
    "encoded path": path("%41", before=f"{POST}/"),
    "moment": path("9", before="/history/at/", after=PODS),
}


@pytest.fixture
async def server(autojump_clock: Any) -> Any:
    async with open_server() as server:
        for number in range(100):
            await server.post(POST, pod(f"a{number}"))
        yield server


async def least(server: InProcess, parts: Iterable[int], case: Case) -> list[float]:
    """Return the least time of a request for each number of parts."""
    times = []
    for count in parts:
        target, headers = case(count)
        found = []
        for _ in range(3):
            request = Request.of("GET", target, headers=[*headers, ("authorization", f"Bearer {ADMIN}")])
            started = time.thread_time()
            await server.assembly.application.application(request)
            found.append(time.thread_time() - started)
        times.append(min(found))
    return times


async def test_time_in_proportion(server: InProcess) -> None:
    gc.collect()
    gc.disable()
    slow = {}
    try:
        for name, case in CASES.items():
            bytes_of_many = len(str(case(1000))) - len(str(case(0)))
            number = BYTES * 1000 // bytes_of_many
            for _ in range(3):  # a measurement may be disturbed, a quadratic algorithm is slow each time
                one, two = await least(server, (number, 2 * number), case)
                if two < SHORT or two / one < GROWTH:
                    break
            else:
                slow[name] = f"{number} parts {one * 1000:.1f} ms, twice as many {two * 1000:.1f} ms"
    finally:
        gc.enable()
    assert not slow
