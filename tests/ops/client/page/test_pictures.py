"""The pictures of docs/ui.md: each view of a cluster with a story, on a light desktop and a dark phone.

KUBECHRONICLE_PICTURES=1 pytest tests/ops/client/page/test_pictures.py      writes docs/pictures/ui-*.webp
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import SETTLED, Browser, executable
from in_process import ADMIN
from server_in_thread import InThread, server_in_thread
from stories.rollouts import make_story

from kubechronicle.ops.client.client import Client
from kubechronicle.ops.client.commands.ui import Loopback, PageExplanations

PICTURES = Path(__file__).resolve().parents[4] / "docs" / "pictures"
MOST_BYTES = 100_000
VIEWS = {
    "home": "#/happened",
    "lanes": "#/lanes?ns=shop",
    "incident": "#/incident?before=1h",
    "cluster": "#/cluster?ns=shop",
    "why": "#/object/shop/deployments.apps/web?tab=why",
}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    executable()
    with server_in_thread(ui=True) as running:
        make_story(running)
        explanations = PageExplanations(Client(InThread(running, ADMIN))).answer
        with Loopback(InThread(running, ADMIN), explanations=explanations) as loopback:
            threading.Thread(target=loopback.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
            yield loopback.url
            loopback.shutdown()


@pytest.mark.parametrize("view", VIEWS)
async def test_each_view_has_its_picture(chromium: Browser, url: str, tmp_path: Path, view: str) -> None:
    folder = PICTURES if os.environ.get("KUBECHRONICLE_PICTURES") else tmp_path
    for name, width, height, dark in ((f"ui-{view}", 1300, 760, False), (f"ui-{view}-phone", 390, 844, True)):
        page = await chromium.page(url + VIEWS[view], width=width, height=height, dark=dark)
        await page.wait(SETTLED)
        file = (folder if not dark else tmp_path) / f"{name}.webp"
        await page.screenshot(file)
        assert 5000 < file.stat().st_size < MOST_BYTES
        assert await page.eval("document.documentElement.scrollWidth - innerWidth") <= 0
        assert not page.errors
