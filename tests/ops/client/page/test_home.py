"""The web page in a real browser: what happened, and the search box."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import trio
from browser import SETTLED, Browser, Page, executable
from in_process import ADMIN, JOE
from server_in_thread import InThread, Running, server_in_thread
from stories.rollouts import ask_as, make_story

from kubechronicle.ops.client.commands.ui import Loopback

RBAC = "/apis/rbac.authorization.k8s.io/v1"


@dataclass
class Served:
    """``admin``, ``joe``: the page's URLs; joe may list changes in the namespace shop alone."""

    admin: str
    joe: str
    running: Running


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    executable()
    with server_in_thread(ui=True) as running:
        make_story(running)
        rules = [{"apiGroups": ["history.kubechronicle.dev"], "resources": ["revisions"], "verbs": ["get", "list"]}]
        running.ask("POST", f"{RBAC}/namespaces/shop/roles", {"metadata": {"name": "auditor"}, "rules": rules})
        files = [{"nonResourceURLs": ["/ui/*"], "verbs": ["get"]}]
        running.ask("POST", f"{RBAC}/clusterroles", {"metadata": {"name": "page"}, "rules": files})
        subjects = [{"kind": "User", "name": "joe", "apiGroup": "rbac.authorization.k8s.io"}]
        for place, kind, role in (
            ("namespaces/shop/rolebindings", "Role", "auditor"),
            ("clusterrolebindings", "ClusterRole", "page"),
        ):
            reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role}
            running.ask(
                "POST", f"{RBAC}/{place}", {"metadata": {"name": role}, "roleRef": reference, "subjects": subjects}
            )
        with Loopback(InThread(running, ADMIN)) as admin, Loopback(InThread(running, JOE)) as joe:
            for loopback in (admin, joe):
                threading.Thread(target=loopback.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
            yield Served(admin.url, joe.url, running)
            admin.shutdown()
            joe.shutdown()


async def go_to(page: Page, hash_: str) -> None:
    await page.eval(f"location.hash = {json.dumps(hash_)}")
    await page.wait(f"location.hash === {json.dumps(hash_)} && {SETTLED}")


async def deeds(page: Page) -> list[str]:
    """Return the rows, without the administrator who acted in the names of others."""
    found: list[str] = await page.eval(
        "[...document.querySelectorAll('.row .deed')].map((each) => each.innerText.replace(/\\s+/g, ' ').trim())"
    )
    return [row.replace(" (by admin)", "") for row in found]


async def search(page: Page, text: str) -> list[str]:
    """Type into the search box, and return the rows and what was understood."""
    await page.press("/", *text, "Enter")
    title = f"document.querySelector('h1').textContent.includes({json.dumps(text)})"
    await page.wait(f"location.hash.includes('q=') && {title} && {SETTLED}")
    shown = await deeds(page)
    await page.press("Escape")
    return shown


async def test_what_happened_comes_in_rows(chromium: Browser, served: Served) -> None:
    page = await chromium.page(served.admin)
    await page.wait(f"{SETTLED} && document.querySelector('.row')")
    rows = await deeds(page)
    expected = [
        "alice deleted ConfigMap flag-0 in shop",
        "bob granted rights by ClusterRoleBinding bob-shop",
        "alice set the image of Deployment web in shop web:2 → web:1",
        "ci/deployer set the image of Deployment web in shop web:1 → web:2",
        "ci/deployer created 4 ConfigMaps in shop",
        "alice created Deployment web in shop",
        "alice created Namespace shop",
    ]
    assert [row for row in rows if not row.startswith("admin")] == expected
    assert await page.text(".day h2") == "Today"
    texts = "[...row.querySelectorAll('.chip')].map((chip) => chip.innerText)"
    chips = f"[...document.querySelectorAll('.row')].map((row) => {texts})"
    shown = dict(zip(rows, await page.eval(chips), strict=True))
    assert shown[expected[3]] == ["2 Pods crashed", "1 ReplicaSet created", "2 Pods created"]
    assert shown[expected[1]] == ["ClusterRole cluster-admin to User bob"]
    assert "“2 crashes”" in await page.text(".days")
    assert "of controllers and of the server itself" in await page.text(".fold")
    # By keys: the first row, its details, and the object.
    await page.press("j")
    assert await page.eval("document.activeElement.closest('.row') === document.querySelector('.row')")
    details = f"[...document.querySelectorAll('.row')][{rows.index(expected[3])}].querySelector('details')"
    await page.eval(f"{details}.querySelector('summary').click()")
    assert "web-2-0" in await page.eval(f"{details}.innerText")
    assert not page.errors


async def test_new_changes_appear_and_open_rows_stay_open(chromium: Browser, served: Served) -> None:
    page = await chromium.page(f"{served.admin}#/happened?q=zoe")
    await page.wait(f"{SETTLED} && document.querySelector('.empty')")
    assert "No change matches." in await page.text(".days")
    await go_to(page, "#/happened")
    await page.eval("document.querySelector('.row details').open = true")
    maps = "/api/v1/namespaces/shop/configmaps"
    body = {"metadata": {"name": "just-now"}}
    await trio.to_thread.run_sync(ask_as, served.running, "carol", "POST", maps, body)
    await page.wait("document.querySelector('.row')?.innerText.includes('just-now')")
    assert await page.eval("document.querySelectorAll('.row details[open]').length") == 1
    await trio.to_thread.run_sync(ask_as, served.running, "carol", "DELETE", f"{maps}/just-now")
    assert not page.errors


async def test_the_search_box_understands_people(chromium: Browser, served: Served) -> None:
    page = await chromium.page(served.admin)
    await page.wait(f"{SETTLED} && document.querySelector('.row')")
    assert await search(page, "alice deleted") == ["alice deleted ConfigMap flag-0 in shop"]
    assert (await page.text(".meaning")).split() == ["alice", "user", "deleted", "operation"]
    assert [row.split(" in ")[0] for row in await search(page, "r.io/web:2")] == [
        "alice set the image of Deployment web",
        "ci/deployer set the image of Deployment web",
    ]
    assert (await search(page, "created configmaps in shop by deployer"))[
        -1
    ] == "ci/deployer created 4 ConfigMaps in shop"
    assert "replicaset-controller created Pod web-2-1 in shop" in await search(page, "web-2-1")
    assert "alice scaled" not in " ".join(await search(page, "deployments since 2h"))
    assert await search(page, "alice since 2020-01-01 until 2020-01-02") == []
    assert "lies in that time" in await page.text(".searched")
    assert not page.errors


async def test_pages_that_do_not_exist_say_so(chromium: Browser, served: Served) -> None:
    for hash_ in ("#/nowhere", "#/object/shop/pods", "#/missing", "#/%E0%A4%A"):
        page = await chromium.page(f"{served.admin}{hash_}")
        await page.wait(f"{SETTLED} && document.querySelector('h1')")
        assert await page.text("h1") == "There is no such page"
        assert not page.errors


async def test_a_visitor_of_one_namespace(chromium: Browser, served: Served) -> None:
    page = await chromium.page(f"{served.joe}#/happened?q=in+shop")
    await page.wait(f"{SETTLED} && document.querySelector('.row')")
    assert "alice deleted ConfigMap flag-0 in shop" in await deeds(page)
    await go_to(page, "#/happened")
    assert "You lack a right" in await page.text("[role=alert]")


async def test_an_incident_is_saved_to_share(chromium: Browser, served: Served) -> None:
    page = await chromium.page(f"{served.admin}#/incident?ns=shop&before=24h")
    await page.wait(f"{SETTLED} && document.querySelector('.export button')")
    await page.eval("URL.createObjectURL = (blob) => { window.saved = blob; return '#/incident'; }")
    for place, words in enumerate(("<!doctype html>", "# What changed in namespace shop from ")):
        await page.eval("document.getElementById('live').textContent = ''")
        await page.eval(f"document.querySelectorAll('.export button')[{place}].click()")
        await page.wait("document.getElementById('live').textContent === 'Saved'")
        text = await page.eval("window.saved.text()")
        assert text.startswith(words)
        assert "2 crashes" in text
    assert not page.errors
