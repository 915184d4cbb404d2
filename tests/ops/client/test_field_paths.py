"""Paths of fields mean the same in every spelling, for the server that selects and the client that prints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Chronicle = Callable[..., Any]


@pytest.fixture
def service(running: Any, shop: tuple[str, int]) -> str:
    """Return a namespace with a Service. Its first port gets another target, then its second port."""
    name, _ = shop
    path = f"/api/v1/namespaces/{name}/services"
    ports = [{"name": "web", "port": 80, "targetPort": 1}, {"name": "tls", "port": 443, "targetPort": 1}]
    spec = {"selector": {"app.kubernetes.io/name": "web"}, "ports": ports}
    running.ask("POST", path, {"metadata": {"name": "web"}, "spec": spec})
    running.ask(
        "PATCH", f"{path}/web?fieldManager=first", {"spec": {"ports": [{**ports[0], "targetPort": 2}, ports[1]]}}
    )
    second = {
        "spec": {"ports": [{**port, "targetPort": 2} for port in ports], "selector": {"app.kubernetes.io/name": "db"}}
    }
    running.ask("PATCH", f"{path}/web?fieldManager=second", second)
    return name


@pytest.mark.parametrize(
    ("path", "manager"),
    [
        ("spec.ports[0].targetPort", "first"),
        ("/spec/ports/0/targetPort", "first"),
        ("spec.ports[name=web].targetPort", "first"),
        ("spec.ports[port=80].targetPort", "first"),
        ("spec.ports[port=80,protocol=TCP].targetPort", "first"),
        ("{.spec.ports[?(@.port==80)].targetPort}", "first"),
        ("spec.ports[1].targetPort", "second"),
        ("spec.ports[port=443].targetPort", "second"),
        ("spec.selector.app.kubernetes.io/name", "second"),
        ("/spec/selector/app.kubernetes.io~1name", "second"),
    ],
)
def test_every_spelling_of_a_path_finds_the_same_change(
    chronicle: Chronicle, service: str, path: str, manager: str
) -> None:
    [answer] = chronicle("who", "set", "service/web", path, "-n", service, "-o", "json").json()["answers"]
    assert answer["revision"]["who"]["fieldManager"] == manager
    log = chronicle("log", "service/web", "--field", path, "-n", service).out
    assert log.count("revision ") == 2, log
    assert f"manager {manager}" in log
    assert "bookkeeping only" not in log


def test_a_position_is_that_of_each_version(chronicle: Chronicle, service: str, running: Any) -> None:
    """A removal that moves the second port to the first place changes spec.ports[0], and no port."""
    before = running.ask("GET", f"/api/v1/namespaces/{service}/services/web")
    before["spec"]["ports"] = before["spec"]["ports"][1:]
    running.ask("PUT", f"/api/v1/namespaces/{service}/services/web?fieldManager=remover", before)
    moved = chronicle("who", "set", "service/web", "spec.ports[0].port", "-n", service)
    assert " from 80 to 443 " in moved.out
    assert "spec.ports[0] was [name=web] before this change and is [name=tls] now" in moved.out
    same = chronicle("who", "set", "service/web", "spec.ports[name=tls].targetPort", "-n", service, "-o", "json").json()
    assert same["answers"][0]["revision"]["who"]["fieldManager"] == "second"
