"""The web page in a real browser: one object, compared by dragging, with authors in the margin; undone; explained."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import trio
from browser import SETTLED, Browser, executable
from in_process import ADMIN
from server_in_thread import InThread, Running, server_in_thread
from stories.rollouts import APPS, ask_as, make_story

from kubechronicle.ops.client.client import Client
from kubechronicle.ops.client.commands.ui import Loopback, PageExplanations
from kubechronicle.ops.client.restoring.page import PageRestores

WEB = "#/object/shop/deployments.apps/web"
MAPS = "/api/v1/namespaces/shop/configmaps"


@dataclass
class Served:
    """``direct``: the page without the helper's answers. ``one``, ``two``: changes of the ConfigMap flags."""

    page: str
    direct: str
    running: Running
    one: str
    two: str

    def undo(self, revision: str, **more: Any) -> tuple[int, Any]:
        asked = {"words": ["configmaps/flags"], "namespace": "shop", "revision": revision, **more}
        return PageRestores(Client(InThread(self.running, ADMIN))).answer(json.dumps(asked).encode())

    def flags(self) -> Any:
        return self.running.ask("GET", f"{MAPS}/flags")["data"]


@pytest.fixture
def served() -> Iterator[Served]:
    executable()
    with server_in_thread(ui=True) as running:
        make_story(running)
        ask_as(running, "alice", "POST", MAPS, {"metadata": {"name": "flags"}, "data": {"a": "1", "b": "1"}})
        changes = [
            ask_as(running, user, "PATCH", f"{MAPS}/flags", {"data": data})["metadata"]["resourceVersion"]
            for user, data in (("bob", {"a": "2"}), ("carol", {"b": "2"}))
        ]
        client = Client(InThread(running, ADMIN))
        answers = {"restores": PageRestores(client).answer, "explanations": PageExplanations(client).answer}
        with Loopback(client.transport, **answers) as helper, Loopback(client.transport) as plain:
            for loopback in (helper, plain):
                threading.Thread(target=loopback.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
            yield Served(helper.url, plain.url, running, changes[0], changes[1])
            helper.shutdown()
            plain.shutdown()


def test_one_change_is_undone_and_later_ones_stay(served: Served) -> None:
    status, plan = served.undo(served.one)
    assert status == 200
    (step,) = plan["steps"]
    assert [(each["field"], each["old"], each["value"]) for each in step["changes"]] == [("data.a", "2", "1")]
    status, done = served.undo(served.one, plan=plan["plan"])
    assert (status, done["results"][0]["failed"]) == (200, False)
    assert served.flags() == {"a": "1", "b": "2"}
    assert served.undo("999999")[1]["message"] == "revision 999999 is no change of configmap/flags in namespace shop"
    assert served.undo("x")[0] == 400


def test_explanations_are_those_of_the_command(served: Served) -> None:
    explain = PageExplanations(Client(InThread(served.running, ADMIN))).answer
    status, found = explain(json.dumps({"words": ["deployments.apps/web"], "namespace": "shop", "limit": 3}).encode())
    assert status == 200
    assert found["object"] == "deployment.apps/web"
    assert 0 < len(found["suspects"]) <= 3
    for body in (b"{", b"[]", b'{"words": 1}', b'{"words": ["pods/x"], "namespace": "shop", "limit": "many"}'):
        assert explain(body)[0] == 400
    assert "has no kind 'widgets'" in explain(b'{"words": ["widgets/x"], "namespace": "shop"}')[1]["message"]


async def test_dragging_compares_any_moment_with_the_newest_state(chromium: Browser, served: Served) -> None:
    page = await chromium.page(f"{served.page}#/object/shop/configmaps/flags")
    await page.wait(f"{SETTLED} && document.querySelector('.diff') && document.querySelector('[name=scrub]')")
    assert "exists" in await page.text(".about")
    assert "by alice" in await page.text(".about")
    slide = (
        "const slide = document.querySelector('[name=scrub]'); slide.value = '0'; slide.dispatchEvent(new Event('{}'))"
    )
    await page.eval(f"(() => {{ {slide.format('input')} }})()")
    both = "['a: \"1\"', 'a: \"2\"', 'b: \"1\"', 'b: \"2\"']"
    await page.wait(f"{both}.every((text) => document.querySelector('.diff')?.innerText.includes(text))")
    assert "revision" in await page.text(".scrub-text")
    await page.eval(f"(() => {{ {slide.format('change')} }})()")
    await page.wait(f"location.hash.includes('from=') && {SETTLED} && document.querySelector('[name=blame]')")
    # The authors in the margin.
    await page.eval("document.querySelector('[name=blame]').click()")
    await page.wait("document.querySelector('.diff .author a')")
    margin = "[...document.querySelectorAll('.diff tr')].map((row) => row.innerText.replace(/\\s+/g, ' '))"
    rows = await page.eval(margin)
    assert await page.eval("document.querySelectorAll('.diff .author a').length") == 4  # once for each run of lines
    assert any('a: "2"' in row and f"{served.one} bob" in row for row in rows)
    assert any('b: "2"' in row and f"{served.two} carol" in row for row in rows)
    # Undo of bob's change alone, by the button.
    await page.eval(f"location.hash = '#/object/shop/configmaps/flags?rev={served.one}'")
    undo = "[...document.querySelectorAll('details.back')].find((each) => each.innerText.includes('Undo'))"
    await page.wait(f"{SETTLED} && {undo}")
    assert f"revert configmaps/flags -n shop --user bob --since {int(served.one) - 1} --until {served.one}" in (
        await page.eval(f"{undo}.querySelector('code').textContent")
    )
    await page.eval(f"{undo}.querySelector('button[aria-haspopup]').click()")
    await page.wait("document.querySelector('dialog[open] .plan')")
    assert "data.a: 2 → 1" in await page.text("dialog[open]")
    await page.press("Enter")
    await page.wait("document.querySelector('dialog[open] button')?.innerText === 'Close'")
    assert await trio.to_thread.run_sync(served.flags) == {"a": "1", "b": "2"}
    assert not page.errors


async def test_the_order_of_names_is_no_difference(chromium: Browser, served: Served) -> None:
    """The server writes defaults behind the names of a client, and sorts them later."""
    page = await chromium.page(f"{served.page}{WEB}")
    await page.wait(f"{SETTLED} && document.querySelector('[name=scrub]')")
    slide = "const slide = document.querySelector('[name=scrub]'); slide.value = '0'"
    await page.eval(f"(() => {{ {slide}; slide.dispatchEvent(new Event('change')); }})()")
    await page.wait(f"location.hash.includes('from=') && {SETTLED} && document.querySelector('.diff, .sides .empty')")
    assert "strategy" not in await page.eval(
        "[...document.querySelectorAll('.diff .added')].map((e) => e.innerText).join()"
    )
    assert not page.errors


async def test_why_is_a_graph(chromium: Browser, served: Served) -> None:
    patch = {"status": {"replicas": 2, "readyReplicas": 0, "observedGeneration": 1}}
    path = f"{APPS}/shop/deployments/web/status"
    await trio.to_thread.run_sync(ask_as, served.running, "system:kube-controller-manager", "PATCH", path, patch)
    page = await chromium.page(f"{served.page}{WEB}?tab=why", width=1500)
    await page.wait(f"{SETTLED} && document.querySelector('.edge')")
    assert "0 of 2 replicas are ready" in await page.text(".symptoms")
    people = "[...document.querySelectorAll('.node.person')].map((each) => each.innerText.replace(/\\s+/g, ' '))"
    assert any("alice (by admin) set the image of Deployment web in shop" in each for each in await page.eval(people))
    assert await page.eval("document.querySelectorAll('.edge.inferred').length") > 0
    edges = await page.eval("document.querySelectorAll('.edge').length")
    assert edges >= await page.eval("document.querySelectorAll('.node').length") - 1
    assert not page.errors
    # Without the helper, the causes of the last change; on a phone, a list.
    page = await chromium.page(f"{served.direct}#/object/shop/pods/web-2-0?tab=why", width=390, height=844)
    await page.wait(f"{SETTLED} && document.querySelector('.narrow-graph')")
    people = await page.text(".node.person")
    assert "ci/deployer" in people
    assert "this page also searches" in await page.text("#panel")
    assert await page.eval("document.documentElement.scrollWidth - innerWidth") <= 0
    assert not page.errors
