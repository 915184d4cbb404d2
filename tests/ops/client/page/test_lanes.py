"""The web page in a real browser: lanes, and the time of a frame with 50,000 changes."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from browser import SETTLED, Browser, Page, executable
from in_process import ADMIN
from server_in_thread import InThread, server_in_thread
from stories.rollouts import make_story

from kubechronicle.ops.client.commands.ui import Loopback

FRAME = 1000 / 60
"""Milliseconds of a frame."""
MANY = """
(() => {
    const [count, objects, now] = [5000, 400, Date.now()];
    const real = window.fetch;
    window.fetch = async (url, options) => {
        if (!String(url).includes("summary=lanes")) return real(url, options);
        const page = window.pages = (window.pages ?? 0) + 1;
        const column = (make) => Array.from({length: count}, (_, place) => make((page - 1) * count + place));
        const answer = {
            stateNames: ["exists", "ready", "waiting", "crash", "failed", "done", "ending", "zero", "gone"],
            objectNames: Array.from({length: objects}, (_, n) => ["pods", `tenant-${n % 50}`, `w${page % 2}-${n}`, ""]),
            userNames: ["alice", "system:node:one"],
            revisions: column((n) => 60000 - n),
            times: column((n) => now - n * 100),
            objects: column((n) => (n * 7919) % objects),
            users: column((n) => n % 2),
            operations: column((n) => n % 40 ? 2 : 1 + (n % 3)),
            states: column((n) => [1, 1, 2, 3, 7, 0][(n >> 3) % 6]),
            next: page < 10 ? String(60000 - page * count) : "",
        };
        return new Response(JSON.stringify(answer), {headers: {"content-type": "application/json"}});
    };
})()
"""
RUN = """
new Promise((resolve) => {
    const canvas = document.querySelector(".lanes-canvas");
    const [frames, drawn] = [[], []];
    let [number, before] = [0, performance.now()];
    const step = (now) => {
        frames.push(now - before);
        before = now;
        if (canvas.lastFrame !== undefined) drawn.push(canvas.lastFrame);
        if (number++ === 90) return resolve([frames, drawn].map((each) => each.slice(2).sort((a, b) => a - b)));
        const deltaY = number % 30 < 15 ? -40 : 40;
        canvas.dispatchEvent(new WheelEvent("wheel", {deltaY, clientX: 700, clientY: 500, cancelable: true}));
        document.querySelector(".lanes-scroll").scrollTop += number % 2 ? 24 : -11;
        requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
})
"""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    executable()
    with server_in_thread(ui=True) as running:
        make_story(running)
        with Loopback(InThread(running, ADMIN)) as loopback:
            threading.Thread(target=loopback.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
            yield loopback.url
            loopback.shutdown()


async def go_to(page: Page, hash_: str) -> None:
    await page.eval(f"location.hash = {json.dumps(hash_)}")
    await page.wait(f"location.hash.startsWith({json.dumps(hash_)}) && {SETTLED}")


async def pixels(page: Page) -> int:
    """Return the number of different colours of the picture."""
    script = """(() => {
        const canvas = document.querySelector(".lanes-canvas");
        const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        return new Set(new Uint32Array(data.buffer)).size;
    })()"""
    return int(await page.eval(f"new Promise(requestAnimationFrame).then(() => {script})"))


async def test_lanes_by_keys(chromium: Browser, url: str) -> None:
    page = await chromium.page(f"{url}#/lanes?ns=shop")
    await page.wait(f"{SETTLED} && document.querySelector('.states')")
    assert await pixels(page) > 6
    panel = await page.text(".then")
    assert "ready" in panel
    assert "without a state" in panel
    # The first lane, the change before the cursor, and the object.
    await page.eval("document.querySelector('.lanes-canvas').focus()")
    await page.press("ArrowDown")
    await page.wait("document.querySelector('.then')?.innerText.includes('configmaps/flag-0')")
    await page.press("[")
    await page.wait("document.querySelector('.then')?.innerText.includes('created')")
    await page.press("]")
    await page.wait("document.querySelector('.then')?.innerText.includes('deleted')")
    await page.press("+", "+")
    await page.wait(f"location.hash.includes('from=') && location.hash.includes('at=') && {SETTLED}")
    await page.press("Enter")
    await page.wait(f"location.hash.startsWith('#/object/shop/configmaps/flag-0?rev=') && {SETTLED}")
    # While Pods crash, the panel names them.
    await go_to(page, "#/lanes?ns=shop&q=object.kind%3DPod")
    await page.eval("document.querySelector('.lanes-canvas').focus()")
    await page.press("ArrowDown", "End")
    await page.wait("document.querySelector('.then')?.innerText.includes('crashes')")
    assert "web-2-0" in await page.text(".states")
    assert not page.errors


async def test_lanes_of_namespaces_lead_to_their_objects(chromium: Browser, url: str) -> None:
    page = await chromium.page(f"{url}#/lanes?by=namespace")
    await page.wait(f"{SETTLED} && document.querySelector('.states')")
    box = await page.eval("document.querySelector('.lanes-canvas').getBoundingClientRect().toJSON()")
    await page.mouse("mousePressed", box["x"] + box["width"] - 30, box["y"] + 38)
    await page.mouse("mouseReleased", box["x"] + box["width"] - 30, box["y"] + 38)
    await page.wait("document.querySelector('.then button')")
    await page.eval("document.querySelector('.then button').click()")
    await page.wait(f"location.hash.startsWith('#/lanes?ns=') && {SETTLED}")
    await go_to(page, "#/lanes?q=object.name%3Dnobody")
    assert "There are no changes in this time that match." in await page.text("#main")
    assert not page.errors


@pytest.mark.alone
@pytest.mark.parametrize("by", ["object", "namespace", "user"])
async def test_a_frame_of_50_000_changes(chromium: Browser, url: str, by: str, record_property: Any) -> None:
    page = await chromium.page(f"{url}#/timeline", width=1400, height=900)
    await page.wait(SETTLED)
    await page.eval(MANY)
    await go_to(page, f"#/lanes?by={by}")
    assert "50,000 changes" in await page.text("[role=status]")
    frames, drawn = await page.eval(RUN)
    median, ninth = (drawn[len(drawn) * part // 10] for part in (5, 9))
    figures = (
        f"drawn in {median:.1f} ms, nine of ten within {ninth:.1f} ms; a frame each {frames[len(frames) // 2]:.1f} ms"
    )
    record_property(by, figures)
    assert median < FRAME, figures
    assert not page.errors


async def test_the_labels_of_long_names_tell_lanes_apart(chromium: Browser, url: str) -> None:
    page = await chromium.page(url + "#/lanes")
    await page.wait(SETTLED)
    names = ["shop  pods/web", "a-long-team-364  configmaps/config-0055", "a-long-team-365  configmaps/config-0055"]
    script = "import('./lane-canvas.js').then(({fitted}) => %s.map((each) => fitted(each, %d)))"
    labels = await page.eval(script % (json.dumps(names), 25))
    assert labels == ["shop  pods/web", "…eam-364  …ps/config-0055", "…eam-365  …ps/config-0055"]
    assert await page.eval(script % (json.dumps(names[:2]), 14)) == ["shop  pods/web", "…s/config-0055"]
