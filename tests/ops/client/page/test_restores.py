"""Restores by the web page: the plan, the button, a plan that is no longer true, and a page that may not restore."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
import trio
from browser import SETTLED, Browser, Page, executable
from in_process import ADMIN, JOE
from server_in_thread import InThread, Running, server_in_thread
from stories.rollouts import KCM, ask_as

from kubechronicle.ops.client.client import Client
from kubechronicle.ops.client.commands.ui import Loopback
from kubechronicle.ops.client.restoring.page import PageRestores

MAPS = "/api/v1/namespaces/shop/configmaps"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


@dataclass
class Served:
    """A server, its page with restores, and the page of a reader. ``first``: the revision that created cart."""

    running: Running
    admin: str
    joe: str
    read_only: str
    first: str

    def restores(self, token: str = ADMIN) -> PageRestores:
        return PageRestores(Client(InThread(self.running, token)))

    def ask(self, token: str = ADMIN, **fields: Any) -> tuple[int, Any]:
        asked = {"words": ["configmaps/cart"], "namespace": "shop", "to": self.first, **fields}
        return self.restores(token).answer(json.dumps(asked).encode())

    def cart(self) -> Any:
        return self.running.ask("GET", f"{MAPS}/cart")["data"]


@pytest.fixture
def served() -> Iterator[Served]:
    with server_in_thread(ui=True) as running, ExitStack() as proxies:
        ask = running.ask
        ask("POST", "/api/v1/namespaces", {"metadata": {"name": "shop"}})
        made = ask("POST", MAPS, {"metadata": {"name": "cart"}, "data": {"size": "3"}})
        ask("PATCH", f"{MAPS}/cart", {"data": {"size": "5"}})
        ask("POST", MAPS, {"metadata": {"name": "till"}, "data": {"coins": "9"}})
        ask("DELETE", f"{MAPS}/till")
        rules = [
            {"apiGroups": ["history.kubechronicle.dev"], "resources": ["*"], "verbs": ["get", "list"]},
            {"apiGroups": [""], "resources": ["configmaps", "namespaces"], "verbs": ["get", "list"]},
            {"nonResourceURLs": ["/ui/*", "/api", "/apis", "/api/*", "/apis/*"], "verbs": ["get"]},
        ]
        ask("POST", f"{RBAC}/clusterroles", {"metadata": {"name": "reader"}, "rules": rules})
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"}
        subjects = [{"kind": "User", "name": "joe", "apiGroup": "rbac.authorization.k8s.io"}]
        binding = {"metadata": {"name": "joe"}, "roleRef": reference, "subjects": subjects}
        ask("POST", f"{RBAC}/clusterrolebindings", binding)

        def url(token: str, *, writes: bool = True) -> str:
            transport = InThread(running, token)
            restores = PageRestores(Client(transport)).answer if writes else None
            loopback = proxies.enter_context(Loopback(transport, restores=restores))
            threading.Thread(target=loopback.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
            proxies.callback(loopback.shutdown)
            return loopback.url

        yield Served(running, url(ADMIN), url(JOE), url(ADMIN, writes=False), made["metadata"]["resourceVersion"])


def test_a_plan_is_carried_out_as_it_was_shown(served: Served) -> None:
    status, plan = served.ask()
    assert status == 200
    (step,) = plan["steps"]
    assert (step["action"], step["name"]) == ("update", "cart")
    assert [(each["field"], each["old"], each["value"]) for each in step["changes"]] == [("data.size", "5", "3")]
    assert served.cart() == {"size": "5"}
    status, done = served.ask(plan=plan["plan"])
    assert (status, [each["outcome"] for each in done["results"]]) == (200, ["reverted"])
    assert served.cart() == {"size": "3"}


def test_the_page_learns_how_a_plan_was_carried_out(served: Served) -> None:
    moment = str(int(served.running.ask("GET", f"{MAPS}/cart")["metadata"]["resourceVersion"]) + 1)
    served.running.ask("DELETE", f"{MAPS}/cart")
    words = {"words": ["configmaps/cart", "configmaps/till"], "to": moment}
    done = served.ask(**words, plan=served.ask(**words)[1]["plan"])[1]
    assert [each["outcome"] for each in done["results"]] == ["created", "created"]
    assert done["carriedOut"].startswith("in one transaction, revisions ")


def test_another_plan_than_the_shown_one_is_not_carried_out(served: Served) -> None:
    plan = served.ask()[1]["plan"]
    served.running.ask("PATCH", f"{MAPS}/cart", {"data": {"colour": "red"}})
    status, answer = served.ask(plan=plan)
    assert status == 409
    assert answer["plan"] != plan
    assert served.cart() == {"size": "5", "colour": "red"}


def test_a_reader_sees_the_rejection(served: Served) -> None:
    status, plan = served.ask(JOE)
    assert status == 200
    assert "cannot patch" in plan["steps"][0]["rejected"]
    status, done = served.ask(JOE, plan=plan["plan"])
    assert (status, done["results"][0]["failed"]) == (200, True)
    assert served.cart() == {"size": "5"}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "the request is not a restore"),
        (b"[]", "the request is not a restore"),
        (b'{"words": 1, "namespace": "", "to": ""}', "the request is not a restore"),
        (b'{"words": [], "namespace": "", "to": "1"}', "names an object or a namespace"),
        (b'{"words": ["configmaps/none"], "namespace": "shop", "to": "9"}', "there was no"),
    ],
)
def test_requests_that_are_none(served: Served, body: bytes, message: str) -> None:
    status, answer = served.restores().answer(body)
    assert status == 400
    assert message in answer["message"]


async def open_page(page: Page, hash_: str) -> None:
    await page.eval(f"location.hash = {json.dumps(hash_)}")
    await page.wait(f"location.hash === {json.dumps(hash_)} && {SETTLED}")


async def test_the_button(chromium: Browser, served: Served) -> None:
    executable()
    page = await chromium.page(served.admin + "#/deleted")
    await page.wait(f"{SETTLED} && document.querySelector('tbody button[aria-haspopup]')")
    await page.eval("document.querySelector('tbody button[aria-haspopup]').click()")
    await page.wait("document.querySelector('dialog[open] .plan')")
    assert "+ recreate configmap/till" in await page.text("dialog[open]")
    assert "Nothing has been changed yet" in await page.text("dialog[open]")
    await page.press("Enter")
    await page.wait("document.querySelector('dialog[open]')?.innerText.includes('configmap/till created')")
    await page.press("Enter")
    await page.wait("!document.querySelector('dialog[open]')")
    found = await trio.to_thread.run_sync(served.running.ask, "GET", f"{MAPS}/till")
    assert found["data"] == {"coins": "9"}

    await open_page(page, f"#/object/shop/configmaps/cart?rev={served.first}")
    await page.eval("document.querySelector('details.back').open = true")
    await page.eval("document.querySelector('details.back button[aria-haspopup]').click()")
    await page.wait("document.querySelector('dialog[open] .plan')")
    assert "data.size: 5 → 3" in await page.text("dialog[open]")
    await page.press("Escape")
    await page.wait("!document.querySelector('dialog[open]')")
    assert await trio.to_thread.run_sync(served.cart) == {"size": "5"}
    assert not page.errors

    only = await chromium.page(served.read_only + f"#/object/shop/configmaps/cart?rev={served.first}")
    await only.wait(f"{SETTLED} && document.querySelector('details.back code')")
    assert await only.eval("document.querySelectorAll('button[aria-haspopup=dialog]').length") == 1  # of the keys
    assert "kubectl chronicle restore configmaps/cart -n shop" in await only.eval(
        "document.querySelector('details.back code').textContent"
    )


def make_cascades(running: Running) -> None:
    """Delete a namespace with two ConfigMaps, and a ConfigMap that owns another one, as controllers carry it out."""
    ask = running.ask
    ask("POST", "/api/v1/namespaces", {"metadata": {"name": "fire"}})
    for name in ("a", "b"):
        ask("POST", "/api/v1/namespaces/fire/configmaps", {"metadata": {"name": name}})
    ask("DELETE", "/api/v1/namespaces/fire")
    for name in ("a", "b"):
        ask_as(running, f"{KCM}namespace-controller", "DELETE", f"/api/v1/namespaces/fire/configmaps/{name}")
    uid = ask("POST", MAPS, {"metadata": {"name": "cow"}})["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "cow", "uid": uid}
    ask("POST", MAPS, {"metadata": {"name": "calf", "ownerReferences": [owner]}})
    ask("DELETE", f"{MAPS}/cow")
    ask_as(running, f"{KCM}generic-garbage-collector", "DELETE", f"{MAPS}/calf")


async def test_deletions_name_the_person_and_offer_the_restore_of_all(chromium: Browser, served: Served) -> None:
    """Controllers deleted most of these objects."""
    executable()
    await trio.to_thread.run_sync(make_cascades, served.running)
    page = await chromium.page(served.admin + "#/deleted")
    await page.wait(f"{SETTLED} && document.querySelector('tbody tr')")
    texts = "[...document.querySelectorAll('tbody tr')].map((row) => row.innerText.replace(/\\s+/g, ' '))"
    rows = await page.eval(texts)
    (fire,) = [row for row in rows if "fire configmaps/b" in row]
    (cow,) = [row for row in rows if "configmaps/cow" in row]
    assert "admin deleted Namespace fire carried out by namespace-controller" in fire
    assert "with 1 other" in fire
    assert "kubectl chronicle restore -n fire --to " in fire
    assert "with 1 other" in cow
    assert cow.count("--with-consequences") == 1
    cows = "[...document.querySelectorAll('tbody tr')].find((row) => row.innerText.includes('configmaps/cow'))"
    await page.eval(f"{cows}.querySelector('button[aria-haspopup]').click()")
    await page.wait("document.querySelector('dialog[open] .plan')")
    assert "+ recreate configmap/calf" in await page.text("dialog[open]")
    await page.press("Enter")
    await page.wait("document.querySelector('dialog[open]')?.innerText.includes('configmap/calf created')")
    found = await trio.to_thread.run_sync(served.running.ask, "GET", f"{MAPS}/calf")
    parent = await trio.to_thread.run_sync(served.running.ask, "GET", f"{MAPS}/cow")
    assert found["metadata"]["ownerReferences"][0]["uid"] == parent["metadata"]["uid"]
    assert not page.errors
