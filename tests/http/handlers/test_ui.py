"""The files of the web page: when they are served, with which rights and headers."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from in_process import AUTHORIZATION, JOE, InProcess, open_server

from kubechronicle.api.values.printable import printable
from kubechronicle.http.handlers.ui import FILES

RBAC = "/apis/rbac.authorization.k8s.io/v1"


async def test_it_is_off_by_default(autojump_clock: Any) -> None:
    async with open_server() as server:
        for path in ("/ui", "/ui/", "/ui/app.js"):
            assert (await server.ask("GET", path)).status == 404
        assert "/ui/" not in (await server.get("/"))["paths"]


async def test_files_and_their_headers(autojump_clock: Any) -> None:
    async with open_server(ui=True) as server:
        assert "/ui/" in (await server.get("/"))["paths"]
        moved = await server.ask("GET", "/ui")
        assert (moved.status, moved.header("location")) == (301, "ui/")
        page = await server.ask("GET", "/ui/")
        assert page.status == 200
        assert page.header("content-type") == "text/html; charset=utf-8"
        policy = page.header("content-security-policy")
        for directive in ("default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "connect-src 'self'"):
            assert directive in policy.split("; ")
        assert "unsafe" not in policy
        assert page.header("x-content-type-options") == "nosniff"
        assert page.header("set-cookie") == ""
        for name in re.findall(rb'(?:src|href)="([^"#]+)"', page.body):
            answer = await server.ask("GET", f"/ui/{name.decode()}")
            assert (answer.status, answer.header("content-security-policy")) == (200, policy)
            packed = await server.ask("GET", f"/ui/{name.decode()}", headers={"accept-encoding": "gzip"})
            assert packed.header("content-encoding") == "gzip"
            assert gzip.decompress(packed.body) == answer.body
            again = {"if-none-match": answer.header("etag")}
            known = await server.ask("GET", f"/ui/{name.decode()}", headers=again)
            assert (known.status, known.body) == (304, b"")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/ui/"),
        ("DELETE", "/ui/app.js"),
        ("GET", "/ui/nothing.js"),
        ("GET", "/ui/../handlers/ui.py"),
        ("GET", "/ui/%2e%2e/handlers/ui.py"),
        ("GET", "/ui/app.js/"),
        ("GET", "/history/at/1/ui/"),
    ],
)
async def test_nothing_else_is_served(autojump_clock: Any, method: str, path: str) -> None:
    async with open_server(ui=True) as server:
        assert (await server.ask(method, path)).status in (404, 405)


async def allow(server: InProcess, *urls: str) -> None:
    role = {"metadata": {"name": "looks"}, "rules": [{"nonResourceURLs": list(urls), "verbs": ["get"]}]}
    await server.post(f"{RBAC}/clusterroles", role)
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "looks"}
    subjects = [{"kind": "User", "name": "joe", "apiGroup": "rbac.authorization.k8s.io"}]
    binding = {"metadata": {"name": "joe"}, "roleRef": reference, "subjects": subjects}
    await server.post(f"{RBAC}/clusterrolebindings", binding)


async def test_it_takes_the_right_to_the_path(autojump_clock: Any) -> None:
    async with open_server(ui=True, authorization=AUTHORIZATION) as server:
        for token in (JOE, ""):
            assert (await server.ask("GET", "/ui/", token=token)).status == 403
        (await server.ask("GET", "/ui/", token="wrong")).refused(401)
        await allow(server, "/ui", "/ui/*")
        for path, status in {"/ui": 301, "/ui/": 200, "/ui/app.js": 200, "/ui/none": 404}.items():
            assert (await server.ask("GET", path, token=JOE)).status == status
            assert (await server.ask("GET", path, token="")).status == 403


FIRST_VIEW = "home.js"
MOST_AT_FIRST = 50_000
"""Bytes, gzipped, that a browser loads to show what happened: half a second at 1 Mbit/s. Other views are loaded when
they are shown, each file once, by its ETag."""
MOST = 110_000
"""Bytes of all files, gzipped: what each server holds in memory."""
MOST_LINES = 400
IMPORT = re.compile(r'^(?:import|export) [^;]*?from "\./([\w.]+)";', re.MULTILINE)


def needed(file: str, seen: set[str]) -> set[str]:
    """Return the names of a script and of those that it imports at once."""
    if file not in seen:
        seen.add(file)
        for name in IMPORT.findall((FILES / file).read_text()):
            needed(name, seen)
    return seen


def test_a_browser_loads_little_at_first() -> None:
    index = (FILES / "index.html").read_text()
    at_first = {"index.html", *re.findall(r'(?:src|href)="([\w.]+)"', index)} | needed("app.js", set())
    at_first |= needed(FIRST_VIEW, set())
    packed = {file.name: len(gzip.compress(file.read_bytes())) for file in FILES.iterdir()}
    assert {"app.css", "app.js", "dom.js"} < at_first < set(packed)
    assert sum(packed[name] for name in at_first) < MOST_AT_FIRST
    assert sum(packed.values()) < MOST
    assert all(len(file.read_text().splitlines()) < MOST_LINES for file in FILES.iterdir())


def test_the_files_use_no_other_hosts() -> None:
    for file in FILES.iterdir():
        text = file.read_text()
        assert not re.findall(r"https?://(?!www\.w3\.org/)", text), file
        unsafe = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|document\.cookie"
        assert not re.search(unsafe, text), file
    page = (FILES / "index.html").read_text()
    assert not re.search(r"<script(?![^>]*\ssrc=)|<style|\sstyle=|\son\w+=", page)


# Ways to put a text into a page, which only dom.js may use: it makes texts printable.
TEXT_WRITERS = re.compile(
    r"\.(?:textContent|innerText|innerHTML|outerHTML)\s*=[^=]|document\.(?:title\s*=|write)|createTextNode"
    r"|insertAdjacent|createContextualFragment|setAttribute\(\"(?:title|aria-label)\""
)


def test_one_script_writes_texts() -> None:
    writers = {file.name for file in FILES.glob("*.js") if TEXT_WRITERS.search(file.read_text())}
    assert writers == {"dom.js"}


SAMPLES = ["plain é 日本", "a\x1b[2J\r\nb\t", "\x9b\u202egpj.exe\u2066", "\u2028\U000e0041\xa0", "it's $(x)"]


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node to run the script")
def test_texts_of_the_page_are_printable_as_on_the_server(tmp_path: Path) -> None:
    script = tmp_path / "printable.mjs"
    script.write_text(
        (FILES / "printable.js").read_text()
        + "\nconst [texts] = process.argv.slice(2).map(JSON.parse);"
        + "\nconsole.log(JSON.stringify(texts.map((each) => [printable(each), shellWord(each)])));"
    )
    answer = subprocess.run(["node", str(script), json.dumps(SAMPLES)], capture_output=True, text=True, check=True)
    shown, words = zip(*json.loads(answer.stdout), strict=True)
    assert list(shown) == [printable(each) for each in SAMPLES]
    assert all(map(str.isprintable, words))
    echoed = subprocess.run(["bash", "-c", f"printf '%s\\n' {words[1]} {words[4]}"], capture_output=True, check=True)
    assert echoed.stdout.decode() == f"{SAMPLES[1]}\n{SAMPLES[4]}\n"
