"""`audit`: changes and recorded reads in one order, and what a missing read says."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from in_process import JOE

from kubechronicle.eventlog.queries.reads import ReadRecord, Recording

Chronicle = Callable[..., Any]
SECRETS = {"rules": [{"level": "Metadata", "resources": [{"group": "", "resources": ["secrets"]}]}]}


def read(namespace: str, name: str, **fields: Any) -> ReadRecord:
    values: dict[str, Any] = {
        "at": time.time(), "revision": 1, "resource": "secrets", "subresource": "", "namespace": namespace,
        "name": name, "verb": "get", "form": "object", "user_name": "jane", "user_uid": "", "user_groups": (),
        "impersonator": "", "request_uri": "/", "user_agent": "curl/8", "source_address": "10.0.0.7", "audit_id": "x",
    }  # fmt: skip
    return ReadRecord(**{**values, **fields})


@pytest.fixture
def record(running: Any) -> Callable[..., None]:
    """Return a function that records reads, as those of a period of an hour that lasts until now."""

    def recorded(*reads: ReadRecord, **fields: Any) -> None:
        now = time.time()
        values = {
            "id": uuid.uuid4(), "server": "one", "since": now - 3600, "until": now, "lost": 0, "clean": False,
            "policy": SECRETS,
        }  # fmt: skip
        log = running.server.store.reads.log.recorded
        running.run(log.record, list(reads), Recording(**{**values, **fields}))

    return recorded


def headings(text: str) -> list[str]:
    return re.findall(r"^(?:revision|read) \d+  .*\)  (.*)$", text, re.MULTILINE)


def test_reads_of_unrecorded_objects_have_no_answer(chronicle: Chronicle, shop: tuple[str, int]) -> None:
    output = chronicle("audit", "configmap/new", "-n", shop[0], "--reads")
    assert (output.code, output.out) == (0, "")
    assert "no reads were found" in output.err
    assert "no answer about reads is possible" in output.err


def own(text: str) -> list[str]:
    """Return the headings without the list of all Secrets that another test records (page/test_pages.py)."""
    return [heading for heading in headings(text) if heading != "list secrets"]


def test_changes_and_reads_come_in_one_order(
    chronicle: Chronicle, shop: tuple[str, int], record: Callable[..., None]
) -> None:
    name, _ = shop
    record(
        read(name, "key"),
        read(name, "other"),
        read(name, "", verb="list", form="table"),
        read("", "", verb="watch", user_name="root"),
        read(name, "key", verb="patch", form="no-op"),
    )
    output = chronicle("audit", "secret/key", "-n", name)
    assert sorted(own(output.out)[:4]) == [
        f"get secrets/key -n {name}", f"list secrets -n {name}", f"patch secrets/key -n {name}", "watch secrets",
    ]  # fmt: skip
    assert own(output.out)[4:] == [f"patch secrets/key -n {name}", f"create secrets/key -n {name}"]
    assert "  by jane, curl/8, from 10.0.0.7\n" in output.out
    assert "    all in the namespace, as a table\n" in output.out
    assert "    all in the cluster\n" in output.out
    assert "    no change: the object was as requested already\n" in output.out
    assert "data.a: *** (before) → *** (after)" in output.out
    assert f"reads of secret/key in namespace {name} are recorded since " in output.err
    assert len(own(chronicle("audit", "secret/key", "-n", name, "--reads").out)) == 4
    assert len(own(chronicle("audit", "secret/key", "-n", name, "--changes").out)) == 2
    assert own(chronicle("audit", "secret/key", "-n", name, "--user", "root").out) == ["watch secrets"]
    assert headings(chronicle("audit", "--resource", "secrets", "-n", name, "--verb", "get", "--limit", "1").out)
    documents = chronicle("audit", "secret/key", "-n", name, "-o", "json").json()["items"]
    assert [each["kind"] for each in documents].count("Revision") == 2
    assert "hush" not in str(documents)


def test_nobody_is_an_answer_with_its_limits(
    chronicle: Chronicle, shop: tuple[str, int], record: Callable[..., None]
) -> None:
    now = time.time()
    record(since=now - 9000, until=now - 7000)
    record(lost=3)
    output = chronicle("audit", "secret/key", "-n", shop[0], "--user", "nobody", "--since", "5h")
    assert "no requests by nobody were found since 20" in output.err
    assert "are recorded since 20" in output.err
    assert "no reads were recorded" in output.err
    assert "3 reads were lost" in output.err


def test_mistakes(chronicle: Chronicle, shop: tuple[str, int]) -> None:
    for arguments in (("--since", "12"), ("--limit", "-1"), ("secret/key", "--resource", "pods")):
        output = chronicle("audit", *arguments, "-n", shop[0])
        assert (output.code, output.out) == (2, "")
    assert chronicle("audit", "-n", shop[0], token=JOE).code != 0
