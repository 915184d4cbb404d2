"""A real headless Chromium, driven over the DevTools protocol as far as tests of pages need.

    with running() as endpoint:
        async with connected(endpoint) as chromium:
            page = await chromium.page(url, width=1600, height=1000)
            await page.wait("document.querySelector('h1')")

Many tests share one Chromium. Each connection has a browser context, so a storage and cache, of its own.

The browser must be on PATH or named by $KUBECHRONICLE_BROWSER. It is never downloaded: `apt-get install chromium`.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import trio
from trio_websocket import WebSocketConnection, open_websocket_url

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-sync",
    "--no-default-browser-check",
    "--mute-audio",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
)
PATIENCE = 60.0
# True in the web page of a server once it shows the part that its address names.
SETTLED = (
    "document.getElementById('main')?.dataset.address === location.hash && document.querySelector('h1')"
    " && !document.querySelector('.loading, [aria-busy]')"
)


def executable() -> str:
    """Return the path of the browser. Skip the test if there is none."""
    named = os.environ.get("KUBECHRONICLE_BROWSER", "")
    path = named or next((path for name in NAMES if (path := shutil.which(name))), "")
    if not path:
        pytest.skip("no browser: `apt-get install chromium`, or name one by KUBECHRONICLE_BROWSER (see docs/ui.md)")
    return path


@dataclass
class Browser:
    """One DevTools connection. Each page is a session of it. ``context``: the browser context of the pages."""

    socket: WebSocketConnection
    context: str = ""
    last: int = 0
    waiting: dict[int, trio.MemorySendChannel[dict[str, Any]]] = field(default_factory=dict)
    pages: dict[str, Page] = field(default_factory=dict)

    async def read(self) -> None:
        while True:
            message = json.loads(await self.socket.get_message())
            if "id" in message:
                await self.waiting.pop(message["id"]).send(message)
            elif message.get("sessionId") in self.pages:
                self.pages[message["sessionId"]].handle_event(message["method"], message["params"])

    async def call(self, method: str, session: str = "", **params: Any) -> dict[str, Any]:
        self.last += 1
        send, receive = trio.open_memory_channel[dict[str, Any]](1)
        self.waiting[self.last] = send
        message = {"id": self.last, "method": method, "params": params} | ({"sessionId": session} if session else {})
        await self.socket.send_message(json.dumps(message))
        with trio.fail_after(PATIENCE):
            answer = await receive.receive()
        assert "error" not in answer, (method, answer)
        result: dict[str, Any] = answer["result"]
        return result

    async def page(self, url: str, *, width: int = 1600, height: int = 1000, dark: bool = False) -> Page:
        target = await self.call("Target.createTarget", url="about:blank", browserContextId=self.context)
        attached = await self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        page = Page(self, attached["sessionId"], target["targetId"])
        self.pages[page.session] = page
        for domain in ("Page", "Runtime", "Log", "Network"):
            await page.call(f"{domain}.enable")
        await page.size(width, height)
        await page.scheme("dark" if dark else "light")
        await page.go(url)
        return page


@dataclass
class Page:
    """A page in the browser.

    ``errors``: errors of scripts, violations of the content security policy, failed requests.
    ``requested_urls``: the URLs of all requests.
    """

    browser: Browser
    session: str
    target: str
    errors: list[str] = field(default_factory=list)
    requested_urls: list[str] = field(default_factory=list)

    def handle_event(self, method: str, params: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.errors.append(str(details.get("exception", {}).get("description") or details["text"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
        elif method == "Network.requestWillBeSent":
            self.requested_urls.append(params["request"]["url"])

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        return await self.browser.call(method, self.session, **params)

    async def go(self, url: str) -> None:
        await self.call("Page.navigate", url=url)

    async def size(self, width: int, height: int) -> None:
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    async def scheme(self, value: str) -> None:
        """Set the color scheme that the system prefers: dark or light."""
        await self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": value}])

    async def eval(self, script: str) -> Any:
        answer = await self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    async def wait(self, script: str) -> Any:
        """Wait until the script is true in the page, and return its value. The page runs it after every change."""
        watching = f"""new Promise((resolve) => {{
            const look = () => {{ const found = ({script}); if (found) resolve(found); return Boolean(found); }};
            if (look()) return;
            const watcher = new MutationObserver(() => look() && watcher.disconnect());
            watcher.observe(document, {{subtree: true, childList: true, attributes: true, characterData: true}});
            addEventListener("load", look);
            addEventListener("focusin", look);
        }})"""
        with trio.move_on_after(PATIENCE):
            return await self.eval(f"({watching}).then((found) => typeof found === 'object' ? true : found)")
        raise AssertionError(f"never true: {script}\n{await self.text()}\n{self.errors}")

    async def text(self, selector: str = "body") -> str:
        return str(await self.eval(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    async def press(self, *keys: str, shift: bool = False) -> None:
        """Press keys, each by name (Enter, ArrowLeft) or by the character it types."""
        for key in keys:
            typed = {"text": "\r" if key == "Enter" else key} if len(key) == 1 or key == "Enter" else {}
            common = {"key": key, "code": key if len(key) > 1 else "", "modifiers": 8 if shift else 0}
            codes = {"Enter": 13, "Tab": 9, "Escape": 27}
            if key in codes:
                common["windowsVirtualKeyCode"] = codes[key]
            await self.call("Input.dispatchKeyEvent", type="keyDown" if typed else "rawKeyDown", **common, **typed)
            await self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    async def mouse(self, kind: str, x: float, y: float) -> None:
        pressed = kind != "mouseMoved" or bool(getattr(self, "_down", False))
        self._down = kind == "mousePressed" or (kind == "mouseMoved" and pressed)
        await self.call(
            "Input.dispatchMouseEvent",
            type=kind,
            x=x,
            y=y,
            button="left" if pressed else "none",
            buttons=1 if self._down else 0,
            clickCount=0 if kind == "mouseMoved" else 1,
        )

    async def screenshot(self, file: Path, *, whole: bool = False) -> None:
        """Write what the page shows, as PNG or, for pages of docs, as a small WebP."""
        form = {"format": "webp", "quality": 82} if file.suffix == ".webp" else {"format": "png"}
        taken = await self.call("Page.captureScreenshot", captureBeyondViewport=whole, **form)
        await trio.Path(file).write_bytes(base64.b64decode(taken["data"]))


@contextmanager
def running() -> Iterator[str]:
    """Run a Chromium within the block, and return the URL that it listens on."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        command = [executable(), *FLAGS, f"--user-data-dir={folder}", "about:blank"]
        log = Path(folder) / "log"
        with log.open("wb") as errors, subprocess.Popen(command, stdout=errors, stderr=errors) as process:
            try:
                yield _endpoint(process, log)
            finally:
                process.kill()


def _endpoint(process: subprocess.Popen[bytes], log: Path) -> str:
    """Return the URL that the browser listens on, from its log."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and process.poll() is None:
        for line in log.read_text(errors="replace").splitlines(keepends=True):
            if line.startswith("DevTools listening on ") and line.endswith("\n"):
                return line.removeprefix("DevTools listening on ").strip()
        time.sleep(0.02)  # there is no event for a line in a file
    raise AssertionError(f"the browser did not start: {log.read_text(errors='replace')[-2000:]}")


@asynccontextmanager
async def connected(endpoint: str) -> AsyncIterator[Browser]:
    """Connect to a running Chromium. The pages are closed, and their storage is removed, at the end."""
    async with open_websocket_url(endpoint, max_message_size=64 * 2**20) as socket, trio.open_nursery() as nursery:
        browser = Browser(socket)
        nursery.start_soon(browser.read)
        browser.context = (await browser.call("Target.createBrowserContext", disposeOnDetach=True))["browserContextId"]
        yield browser
        nursery.cancel_scope.cancel()
