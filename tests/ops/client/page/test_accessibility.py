"""The web page by the rules of axe (WCAG 2.2 A and AA, and axe's best practices), on a light desktop and a dark phone.

axe-core is fetched by npm into .cache/axe, by tests/clients/prepare.sh; without npm or a browser the test is skipped.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import SETTLED, Browser, Page, executable
from in_process import ADMIN
from server_in_thread import InThread, server_in_thread

from kubechronicle.ops.client.commands.ui import Loopback

ROOT = Path(__file__).resolve().parents[4]
AXE = ROOT / ".cache" / "axe" / "package" / "axe.min.js"
WEB = "#/object/shop/configmaps/cart"
PAGES = (
    "#/happened",
    "#/happened?q=admin+created",
    "#/nowhere",
    "#/lanes",
    "#/timeline",
    "#/cluster",
    "#/cluster?ns=shop",
    "#/incident",
    WEB,
    f"{WEB}?tab=blame",
    f"{WEB}?tab=tree",
    f"{WEB}?tab=readers",
    f"{WEB}?tab=why",
    "#/object/shop/configmaps/till",
    "#/object/shop/secrets/key",
    "#/search?s=1",
    "#/deleted",
    "#/policies",
)
# A bar may be anywhere below the label of a chart, by the time of the test. So one is stretched over the whole chart.
COVER = """for (const [name, value] of Object.entries({x: 0, y: 0, width: "100%", height: "100%"}))
    document.querySelector(".frame rect[class^=series]")?.setAttribute(name, value);
"""
RUN = """axe.run(document, {resultTypes: ["violations"]}).then((found) => found.violations.map((one) => {
    const nodes = one.nodes.slice(0, 3).map((node) => `${node.target} ${node.failureSummary}`);
    return `${one.id}: ${one.help}: ${nodes.join("; ")}`;
}))"""


@pytest.fixture(scope="module")
def axe() -> str:
    executable()
    made = subprocess.run(
        [ROOT / "tests" / "clients" / "prepare.sh", "axe"], capture_output=True, text=True, check=False
    )
    if made.returncode:
        pytest.skip(made.stderr.strip().rpartition("\n")[2])
    return AXE.read_text()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    executable()
    with server_in_thread(ui=True) as running:
        ask = running.ask
        ask("POST", "/api/v1/namespaces", {"metadata": {"name": "shop"}})
        maps = "/api/v1/namespaces/shop/configmaps"
        ask("POST", maps, {"metadata": {"name": "cart"}, "data": {"size": "3"}})
        ask("PATCH", f"{maps}/cart", {"data": {"size": "5", "colour": "red"}})
        ask("POST", maps, {"metadata": {"name": "till"}})
        ask("DELETE", f"{maps}/till")
        ask("POST", "/api/v1/namespaces/shop/secrets", {"metadata": {"name": "key"}, "stringData": {"a": "hush"}})
        with Loopback(InThread(running, ADMIN)) as loopback:
            threading.Thread(target=loopback.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
            yield loopback.url
            loopback.shutdown()


async def violations(page: Page, hash_: str) -> Any:
    await page.eval(f"location.hash = {hash_!r}")
    await page.wait(f"location.hash === {hash_!r} && {SETTLED}")
    await page.eval(COVER)
    return await page.eval(RUN)


async def test_axe_finds_nothing(chromium: Browser, url: str, axe: str) -> None:
    found = {}
    for width, dark in ((1600, False), (390, True)):
        page = await chromium.page(url + PAGES[0], width=width, dark=dark)
        await page.wait(SETTLED)
        await page.eval(f"{axe}; true")
        found |= {(hash_, width, dark): await violations(page, hash_) for hash_ in PAGES}
    wrong = [f"{where}: {each}" for where, each in found.items() if each]
    assert not wrong, "\n".join(wrong)
