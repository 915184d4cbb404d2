"""`who tried`, `who entered` and `incident` about recorded accesses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from in_process import ADMIN, JOE
from server_in_thread import InThread, Running, server_in_thread

from kubechronicle.api.audit import policy as policies
from kubechronicle.http.audit import accesses as module
from kubechronicle.ops.client import session
from kubechronicle.ops.server.audit import ReadsPlan

Chronicle = Callable[..., Any]
POLICY = b"apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- {level: Metadata}\n"
RECORDS = "/apis/history.kubechronicle.dev/v1/accessrecords"


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    file = tmp_path_factory.mktemp("record") / "policy.yaml"
    file.write_bytes(POLICY)
    plan = ReadsPlan(policy=policies.load(POLICY)[0], file=file, content=POLICY, days=0)
    interval, module.INTERVAL = module.INTERVAL, 0.0  # type: ignore[misc]
    try:
        with server_in_thread(other={"accesses": plan}) as running:
            yield running
    finally:
        module.INTERVAL = interval  # type: ignore[misc]


@pytest.fixture
def ask(recording: Running, chronicle: Chronicle, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Chronicle:
    monkeypatch.setattr(session, "make_transport", lambda t: InThread(recording, t.server.token, t.headers))
    return chronicle


def until(running: Running, count: int, type_: str) -> list[Any]:
    """Return the records of a type once there are so many."""

    async def wait(revision: int) -> None:
        with trio.fail_after(30):
            await running.server.store.reads.wait_newer(revision)

    while True:
        applied = running.server.store.reads.applied
        found = running.ask("GET", f"{RECORDS}?labelSelector=history.kubechronicle.dev/type={type_}")["items"]
        if len(found) >= count:
            return found
        running.run(wait, applied)


@pytest.fixture(scope="module")
def accessed(recording: Running) -> None:
    """Let joe be refused thrice, in two namespaces, and an administrator get a token."""
    joe = InThread(recording, JOE)
    recording.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "shop"}})
    recording.ask("POST", "/api/v1/namespaces/shop/serviceaccounts", {"metadata": {"name": "ci"}})
    for method, path in (
        ("DELETE", "/api/v1/namespaces/shop/secrets/key"),
        ("GET", "/api/v1/namespaces/shop/pods"),
        ("GET", "/api/v1/namespaces/default/secrets/key"),
    ):
        assert joe.send(method, path, {"User-Agent": "curl/8"}, None).status == 403
    recording.ask("POST", "/api/v1/namespaces/shop/serviceaccounts/ci/token", {"spec": {"expirationSeconds": 600}})
    until(recording, 3, "Denied")
    until(recording, 1, "Token")


def test_who_tried_tells_who_was_refused_what_and_why(accessed: None, ask: Chronicle) -> None:
    found = ask("who", "tried", "-n", "shop")
    assert found.code == 0
    assert "joe was refused to delete secrets/key -n shop, at 20" in found.out
    assert "joe was refused to list pods -n shop, at 20" in found.out
    assert "-n default" not in found.out
    assert "because" in found.out
    assert "cannot delete resource" in found.out
    assert "accesses are recorded since 20" in found.err
    assert "only namespace shop was searched: 1 lie outside of it, and -A finds them" in found.err
    assert len(ask("who", "tried", "-A", "-o", "json").json()["accesses"]) == 3


@pytest.mark.parametrize(
    ("words", "count"),
    [
        (("delete",), 1),
        (("delete", "secrets"), 1),
        (("secret/key",), 1),
        (("secrets", "-A"), 2),
        (("get", "secret/key", "-A"), 1),
        (("delete", "pods"), 0),
        (("--by", "jo*"), 2),
        (("--by", "ann"), 0),
        (("--since", "1h"), 2),
    ],
)
def test_who_tried_is_narrowed(accessed: None, ask: Chronicle, words: tuple[str, ...], count: int) -> None:
    found = ask("who", "tried", *words, "-n", "shop", "-o", "json")
    assert len(found.json()["accesses"]) == count
    assert found.code == int(count == 0)


def test_who_entered_tells_tokens_of_accounts(accessed: None, ask: Chronicle) -> None:
    found = ask("who", "entered", "serviceaccount/ci", "-n", "shop")
    assert found.code == 0, found.err
    assert "admin got a token of serviceaccount/ci -n shop at 20" in found.out
    assert "token id" in found.out
    nobody = ask("who", "entered", "pod/web", "-n", "shop")
    assert (nobody.code, nobody.out) == (1, "Nobody entered.\n")


def test_incident_has_a_section_of_accesses(accessed: None, ask: Chronicle) -> None:
    found = ask("incident", "now", "-n", "shop", "--before", "1h")
    assert found.code == 0
    _, _, accesses = found.out.partition("Refused requests, sessions and tokens:")
    assert "joe was refused to delete secrets/key -n shop" in accesses
    assert "admin got a token of serviceaccount/ci" in accesses
    assert "AccessRecord" not in found.out
    assert len(ask("incident", "now", "-n", "shop", "-o", "json").json()["accesses"]) == 3


def test_without_a_recording_there_is_no_answer(chronicle: Chronicle) -> None:
    found = chronicle("who", "tried")
    assert found.code == 2
    assert "accesses are not recorded here: no answer is possible" in found.err


def test_without_the_right_there_is_no_answer(accessed: None, ask: Chronicle) -> None:
    found = ask("who", "tried", token=JOE)
    assert found.code == 2
    assert "forbidden" in found.err
    assert ask("who", "deleted", token=ADMIN).code == 2
