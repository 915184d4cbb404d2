"""The web page in a real browser, on a server with a history, used by pointer and by keys."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
import trio
from browser import SETTLED, Browser, Page, executable
from in_process import ADMIN, JOE
from server_in_thread import InThread, Running, server_in_thread

from kubechronicle.eventlog.queries.reads import ReadRecord, Recording
from kubechronicle.ops.client.commands.ui import Loopback
from kubechronicle.ops.client.transport import Reply, Transport

RBAC = "/apis/rbac.authorization.k8s.io/v1"
WEB = "#/object/shop/deployments.apps/web"
THREE = "document.querySelectorAll('tbody tr').length === 3"
HOSTILE = "<img src=x onerror=document.title='run'>"


@dataclass
class Served:
    """The page's URL for each user.

    ``expired``: a user whose credentials have expired
    ``compacted``: an administrator, on a server whose history is compacted
    """

    admin: str
    joe: str
    expired: str
    compacted: str
    running: Running


class CompactedHistory(InThread):
    """A transport whose history is compacted."""

    def send(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Reply:
        if path.startswith("/apis/history"):
            status = {"kind": "Status", "code": 410, "message": "the oldest moment is 2026-01-01T00:00:00Z"}
            return Reply(410, {"content-type": "application/json"}, json.dumps(status).encode())
        return super().send(method, path, headers, body)


class ExpiredCredentials(InThread):
    """A transport that gets the page, but whose credentials have expired."""

    def send(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Reply:
        token = "expired" if path.startswith("/apis/") else ADMIN
        return InThread(self._running, token).send(method, path, headers, body)


def make_history(running: Running) -> None:
    ask = running.ask
    ask("POST", "/api/v1/namespaces", {"metadata": {"name": "shop"}})
    container = {"name": "web", "image": "nginx:1"}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}
    spec = {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    deployments = "/apis/apps/v1/namespaces/shop/deployments"
    ask("POST", deployments, {"metadata": {"name": "web", "annotations": {"note": HOSTILE}}, "spec": spec})
    ask("PATCH", f"{deployments}/web", {"spec": {"replicas": 5}})
    image = {"spec": {"template": {"spec": {"containers": [{**container, "image": "nginx:2"}]}}}}
    ask("PATCH", f"{deployments}/web", image)
    ask("POST", "/api/v1/namespaces/shop/secrets", {"metadata": {"name": "key"}, "stringData": {"a": "hush"}})
    for name in ("cart", "till"):
        ask("POST", "/api/v1/namespaces/shop/configmaps", {"metadata": {"name": name}})
        ask("DELETE", f"/api/v1/namespaces/shop/configmaps/{name}")
    ask("POST", "/api/v1/namespaces/shop/configmaps", {"metadata": {"name": "till"}})
    rules = [
        {"apiGroups": ["history.kubechronicle.dev"], "resources": ["revisions"], "verbs": ["get", "list"]},
        {"nonResourceURLs": ["/ui/*"], "verbs": ["get"]},
    ]
    ask("POST", f"{RBAC}/clusterroles", {"metadata": {"name": "auditor"}, "rules": rules})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "auditor"}
    subjects = [{"kind": "User", "name": "joe", "apiGroup": "rbac.authorization.k8s.io"}]
    binding = {"metadata": {"name": "joe"}, "roleRef": reference, "subjects": subjects}
    ask("POST", f"{RBAC}/clusterrolebindings", binding)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    executable()
    with server_in_thread(ui=True) as running, ExitStack() as proxies:
        make_history(running)

        def url(transport: Transport) -> str:
            loopback = proxies.enter_context(Loopback(transport))
            thread = threading.Thread(target=loopback.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
            thread.start()
            proxies.callback(loopback.shutdown)
            return loopback.url

        yield Served(
            url(InThread(running, ADMIN)),
            url(InThread(running, JOE)),
            url(ExpiredCredentials(running, "")),
            url(CompactedHistory(running, ADMIN)),
            running,
        )


async def open_page(chromium: Browser, url: str, hash_: str, **size: Any) -> Page:
    page = await chromium.page(url + hash_, **size)
    await page.wait(SETTLED)
    return page


async def go_to(page: Page, hash_: str) -> None:
    """Go to another part of the page."""
    await page.eval(f"location.hash = {json.dumps(hash_)}")
    await page.wait(f"location.hash === {json.dumps(hash_)} && {SETTLED}")


async def hash_of(page: Page) -> str:
    return str(await page.eval("location.hash"))


def check_page(page: Page) -> None:
    """Check that the page had no errors, and sent requests only to its own proxy."""
    assert not page.errors
    base = page.requested_urls[0].split("#")[0].removesuffix("ui/")
    assert all(url.startswith(base) for url in page.requested_urls), page.requested_urls


async def test_the_timeline_and_its_keys(chromium: Browser, served: Served) -> None:
    page = await open_page(chromium, served.admin, "#/timeline")
    shifts = """new Promise((resolve) => new PerformanceObserver((list) => resolve(list.getEntries()
        .filter((entry) => !entry.hadRecentInput).reduce((sum, entry) => sum + entry.value, 0)))
        .observe({type: "layout-shift", buffered: true}) ?? setTimeout(() => resolve(0), 300))"""
    assert await page.eval(shifts) < 0.01
    assert "deployments 3" in (await page.text(".legend")).replace("\n", " ")
    assert await page.eval("document.querySelectorAll('.frame svg rect[class^=series]').length") > 3
    assert await page.eval("document.querySelectorAll('tbody tr').length") > 20
    # By keys: move to the chart and its last bucket, zoom in and out.
    await page.press("c")
    assert await page.eval("document.activeElement.className") == "frame"
    await page.press("End")
    assert "changes" in await page.text(".chart-status")
    await page.press("Enter")
    await page.wait(f"location.hash.includes('from=') && {SETTLED}")
    zoomed = await hash_of(page)
    await page.wait("document.activeElement.className === 'frame'")
    await page.press("-")
    await page.wait(f"location.hash !== {json.dumps(zoomed)} && {SETTLED}")
    # By pointer: drag over a part of the chart.
    await go_to(page, "#/timeline?by=user")
    assert "admin" in await page.text(".legend")
    box = await page.eval("document.querySelector('.frame').getBoundingClientRect().toJSON()")
    await page.mouse("mousePressed", box["x"] + box["width"] * 0.5, box["y"] + 50)
    await page.mouse("mouseMoved", box["x"] + box["width"] * 0.98, box["y"] + 60)
    await page.mouse("mouseReleased", box["x"] + box["width"] * 0.98, box["y"] + 60)
    await page.wait(f"location.hash.includes('from=') && location.hash.includes('by=user') && {SETTLED}")
    # Select by a name of the legend; open a row with j and Enter.
    await go_to(page, "#/timeline?ns=shop&by=resource")
    await page.eval("document.querySelector('.legend button[title$=\"deployments.apps\"]').click()")
    await page.wait(f"location.hash.includes('deployments.apps') && {SETTLED} && {THREE}")
    await page.press("j", "j", "Enter")
    await page.wait(f"location.hash.startsWith('{WEB}') && {SETTLED} && document.querySelector('.diff')")
    assert "replicas: 5" in await page.text(".diff")
    check_page(page)


async def test_an_object_side_by_side_and_its_blame(chromium: Browser, served: Served) -> None:
    page = await open_page(chromium, served.admin, WEB)
    await page.wait("document.querySelector('.diff .changed')")
    assert "nginx:2" in await page.text(".diff")
    assert await page.eval("document.querySelectorAll('.revisions tbody tr').length") == 3
    await page.press("[")
    await page.wait("document.querySelector('.diff')?.innerText.includes('replicas: 5')")
    # Compare the first and the last revision.
    await page.eval("document.querySelectorAll('input[name=to]')[0].click()")
    await page.wait(f"document.querySelector('.diff')?.innerText.includes('nginx:2') && {SETTLED}")
    await page.eval("document.querySelectorAll('input[name=from]')[2].click()")
    both = "['replicas: 3', 'replicas: 5', 'nginx:1', 'nginx:2']"
    await page.wait(f"{both}.every((text) => document.querySelector('.diff')?.innerText.includes(text))")
    assert await page.eval("document.querySelectorAll('main img').length") == 0
    await go_to(page, f"{WEB}?tab=blame")
    revisions = await page.eval("[...document.querySelectorAll('.revisions [data-rev]')].map((a) => a.dataset.rev)")
    rows = (await page.text(".blame")).replace("\t", " ").splitlines()
    authors = {line.split()[-1]: line.split()[0] for line in rows if line.split()[-1] in ("nginx:2", "5")}
    assert authors == {"nginx:2": revisions[0], "5": revisions[1]}
    assert HOSTILE in await page.text(".blame")
    assert await page.eval("document.title") != "run"
    check_page(page)


async def test_the_readers_of_an_object(chromium: Browser, served: Served) -> None:
    key = "#/object/shop/secrets/key"
    now = time.time()
    log = served.running.server.store.reads.log.recorded
    what = {
        "resource": "secrets",
        "subresource": "",
        "revision": 1,
        "user_uid": "",
        "user_groups": (),
        "impersonator": "",
    }
    rest = {"request_uri": "/", "user_agent": HOSTILE, "source_address": "10.0.0.7", "audit_id": ""}
    one = ReadRecord(at=now, namespace="shop", name="key", verb="get", form="object", user_name="jane", **what, **rest)
    all_ = one._replace(namespace="", name="", verb="list", form="table", user_name="root")
    page = await open_page(chromium, served.admin, f"{key}?tab=readers")
    await page.wait("document.querySelector('#panel')?.innerText.includes('nobody can be ruled out')")
    recording = Recording(uuid.uuid4(), "one", now - 60, now, 2, clean=False, policy={"rules": []})
    await trio.to_thread.run_sync(served.running.run, log.record, [one, all_], recording)
    await go_to(page, f"{key}?tab=blame")
    await go_to(page, f"{key}?tab=readers")
    await page.wait("document.querySelectorAll('.reads .row').length === 2")
    shown = await page.text("#panel")
    assert all(text in shown for text in ("jane", "root", "all in the cluster, as a table", "2 lost reads", HOSTILE))
    check_page(page)
    joes = await open_page(chromium, served.joe, f"{key}?tab=readers")
    await joes.wait("document.querySelector('#panel')?.innerText.includes('You lack a right')")


async def test_blame_reads_all_pages_of_a_long_history(chromium: Browser, served: Served) -> None:
    running = served.running
    maps = "/api/v1/namespaces/counting/configmaps"

    def make_revisions() -> set[str]:
        running.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "counting"}})
        data = {"kept": "always", "number": "0"}
        first = running.ask("POST", maps, {"metadata": {"name": "counter"}, "data": data})
        for number in range(1, 251):
            last = running.ask("PATCH", f"{maps}/counter", {"data": {"number": str(number)}})
        return {each["metadata"]["resourceVersion"] for each in (first, last)}

    authors = await trio.to_thread.run_sync(make_revisions)
    page = await open_page(chromium, served.admin, "#/object/counting/configmaps/counter?tab=blame")
    await page.wait("document.querySelector('table.blame')?.innerText.includes('250')")
    authors_shown = await page.eval("[...document.querySelectorAll('.blame a')].map((a) => a.textContent)")
    assert set(authors_shown) == authors
    assert "earlier than is shown" not in await page.text(".blame")
    check_page(page)


async def test_ranges_fit_the_changes(chromium: Browser, served: Served) -> None:
    """Within a day, the few minutes of this history would be one bar at the right edge."""
    for route, bars in (("#/timeline", ".frame rect[class^=series]"), ("#/cluster?ns=shop", ".strip rect")):
        page = await open_page(chromium, served.admin, route)
        await page.wait(f"document.querySelector('{bars}')")
        left = await page.eval(
            f"Math.min(...[...document.querySelectorAll('{bars}')].map((bar) => bar.x.baseVal.value))"
        )
        assert 0 <= left < 0.9 * 960
        check_page(page)


async def test_search_and_deleted_objects(chromium: Browser, served: Served) -> None:
    page = await open_page(chromium, served.admin, "#/search")
    await page.press("/", "/", *"web", "Enter")
    await page.wait(f"location.hash.includes('name=web') && {SETTLED} && {THREE}")
    await go_to(page, "#/search?field=spec.replicas&operation=Update&s=1")
    assert "spec.replicas: 3 → 5" in await page.text("tbody")
    await go_to(page, "#/search?name=nothing&s=1")
    assert "No change matches" in await page.text(".changes")
    await page.press("Escape", "d")
    await page.wait(f"location.hash === '#/deleted' && {SETTLED}")
    rows = await page.text("tbody")
    assert "kubectl chronicle restore configmaps/cart -n shop --to " in rows
    assert "it has been created again since" in rows
    await page.eval("document.querySelector('.copyable button').click()")
    await page.wait("['Copied', 'Selected'].includes(document.querySelector('.copyable button').textContent)")
    await go_to(page, "#/object/shop/configmaps/cart")
    await page.wait("document.querySelector('.diff')")
    assert "kubectl chronicle restore configmaps/cart -n shop --to " in await page.text(".back")
    check_page(page)


async def test_values_of_secrets_are_shown_on_a_click(chromium: Browser, served: Served) -> None:
    """The server records it. An object with finalizers comes back as it was before its mark."""
    running, space = served.running, "/api/v1/namespaces/shop"

    def delete_with_finalizer() -> str:
        held = {"metadata": {"name": "held", "finalizers": ["example.com/a"]}}
        running.ask("POST", f"{space}/configmaps", held)
        marked = running.ask("DELETE", f"{space}/configmaps/held")["metadata"]["resourceVersion"]
        running.ask("PATCH", f"{space}/configmaps/held", {"metadata": {"finalizers": None}})
        return f"kubectl chronicle restore configmaps/held -n shop --to {int(marked) - 1}"

    command = await trio.to_thread.run_sync(delete_with_finalizer)
    page = await open_page(chromium, served.admin, "#/object/shop/secrets/key")
    await page.wait("document.querySelector('.panel')?.innerText.includes('Values are masked')")
    assert "aHVzaA" not in await page.text()
    await page.eval("document.querySelector('.panel > .note button').click()")
    await page.wait("document.querySelector('.panel')?.innerText.includes('aHVzaA==')")
    assert "The server has recorded that" in await page.text(".panel")
    await go_to(page, "#/deleted")
    assert command in await page.text("tbody")
    await go_to(page, "#/object/shop/configmaps/held")
    await page.wait("document.querySelector('.back')")
    assert command in await page.text(".back")
    check_page(page)


async def test_hidden_objects_and_errors_are_explained(chromium: Browser, served: Served) -> None:
    page = await open_page(chromium, served.joe, "#/object/shop/secrets/key")
    missing = "Missing: get on secrets in namespace shop"
    await page.wait(f"document.querySelector('.panel')?.innerText.includes('{missing}')")
    assert "redacted" in await page.text(".revisions")
    await go_to(page, "#/timeline?ns=shop")
    assert "redacted: you may not read this object" in await page.text("tbody")
    assert "You lack list on clusterrevisions" in await page.text(".changes .note")
    assert "hush" not in await page.text()
    for url, where, words in (
        (served.joe, "#/object/_/namespaces/shop", "Missing: list on clusterrevisions"),
        (served.expired, "#/timeline", "The server does not know who you are"),
        (served.compacted, "#/timeline", "That part of history is not kept any more"),
    ):
        other = await open_page(chromium, url, where)
        assert words in await other.text("[role=alert]")
    await go_to(other, "#/search?s=1")
    assert "the oldest moment is 2026" in await other.text("[role=alert]")


async def test_layout_themes_and_focus(chromium: Browser, served: Served) -> None:
    pages = (
        "#/happened",
        "#/timeline",
        WEB,
        f"{WEB}?tab=blame",
        f"{WEB}?tab=readers",
        "#/search?s=1",
        "#/deleted",
        "#/policies",
    )
    page = await open_page(chromium, served.admin, pages[0])
    for hash_ in pages:
        await go_to(page, hash_)
        for width in (360, 800, 1600):
            await page.size(width, 900)
            assert await page.eval("document.documentElement.scrollWidth - innerWidth") <= 0, (hash_, width)
    ground = "getComputedStyle(document.body).backgroundColor"
    light = await page.eval(ground)
    await page.scheme("dark")
    dark = await page.eval(ground)
    assert light != dark
    await page.press("x", "x")  # dark, then light, for any setting of the system
    assert await page.eval(ground) == light
    await page.go(served.admin + "#/search")
    await page.wait(f"{SETTLED} && document.getElementById('theme').textContent === 'Theme: light'")
    await page.press("?")
    await page.wait("document.getElementById('help').open")
    await page.press("Escape")
    await page.wait("!document.getElementById('help').open")
    # The focus is visible, and moves in the order of the page.
    await page.eval("document.getElementById('main').blur()")
    focused = []
    for _ in range(16):
        await page.press("Tab")
        focused.append(await page.eval("document.activeElement.name || document.activeElement.textContent.trim()"))
        assert await page.eval("getComputedStyle(document.activeElement).outlineStyle") == "solid", focused
    assert focused[:15] == [
        "Skip to the content",
        "kubechronicle",
        "find",
        "Times: UTC",
        "Theme: light",
        "Keys",
        "Home",
        "Lanes",
        "Timeline",
        "Cluster",
        "Incident",
        "Search",
        "Deleted",
        "Policies",
        "name",
    ]


async def test_policies_that_only_audit(chromium: Browser, served: Served) -> None:
    group = "/apis/admissionregistration.k8s.io/v1"
    rule = {"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["deployments"]}
    validation = {"expression": "object.spec.replicas < 4", "message": HOSTILE}
    spec = {"matchConstraints": {"resourceRules": [rule]}, "validations": [validation]}
    bound = {"policyName": "few", "validationActions": ["Audit"]}
    meta = {"metadata": {"name": "few"}}
    ask = served.running.ask
    await trio.to_thread.run_sync(ask, "POST", f"{group}/validatingadmissionpolicies", {**meta, "spec": spec})
    page = await open_page(chromium, served.admin, "#/timeline")
    await page.press("p")
    await page.wait(f"location.hash === '#/policies' && {SETTLED}")
    assert "no policy only audits" in await page.text(".changes")
    path = f"{group}/validatingadmissionpolicybindings"
    await trio.to_thread.run_sync(ask, "POST", path, {**meta, "spec": bound})
    await go_to(page, "#/policies?since=7d&ns=shop")
    assert await page.eval("document.querySelector('h2').textContent") == "few"
    assert "2 writes would have been refused, in the last week." in await page.text(".changes")
    assert "admin ×2" in await page.text(".card .chips")
    assert HOSTILE in await page.text(".card .row")
    check_page(page)
    refused = await open_page(chromium, served.joe, "#/policies")
    assert "You lack a right" in await refused.text(".error")
    await trio.to_thread.run_sync(ask, "DELETE", f"{path}/few")
    await trio.to_thread.run_sync(ask, "DELETE", f"{group}/validatingadmissionpolicies/few")
