"""docs/metrics.md: each family of kube-apiserver is either served or explained, as a running server shows."""

from __future__ import annotations

import re
from pathlib import Path

from in_process import MAPS, PODS, configmap, open_server, pod
from trio.testing import MockClock

ROOT = Path(__file__).parents[3]
OWN = ("kubechronicle_", "python_")
LISTENER = {"apiserver_tls_handshake_errors_total"}
"""Families of a part that a server without sockets lacks."""


def sections() -> dict[str, set[str]]:
    """Return the families on the page by the heading above them."""
    parts = re.split(r"^## (.+)$", (ROOT / "docs" / "metrics.md").read_text(), flags=re.M)[1:]
    # The first cell of a row names families; the others may name some that say the same.
    rows = {
        title: [line.split(" | ")[0] for line in text.splitlines()]
        for title, text in zip(parts[::2], parts[1::2], strict=True)
    }
    return {title: {name for line in lines for name in re.findall(r"`(\w+)`", line)} for title, lines in rows.items()}


async def families() -> set[str]:
    """Return the families that a running server serves."""
    async with open_server(loops=True) as server:
        await server.post(MAPS, configmap("a"))
        await server.post(PODS, pod("a"))
        await server.get(MAPS)
        answer = await server.ask("GET", "/metrics")
        return set(re.findall(r"^# TYPE (\w+)", answer.body.decode(), flags=re.M))


async def test_every_family_is_served_or_explained(autojump_clock: MockClock) -> None:
    found, page = await families(), sections()
    assert page.keys() == {"Served", "Served if their part is on", "Served besides", "Not served"}
    served = page["Served"] | page["Served besides"]
    assert served - found == LISTENER
    assert not found & page["Not served"]
    unknown = {name for name in found - served - page["Served if their part is on"] if not name.startswith(OWN)}
    assert not unknown, f"docs/metrics.md lacks {sorted(unknown)}"
    listed = set((Path(__file__).parent / "families.txt").read_text().split())
    assert listed == page["Served"] | page["Served if their part is on"] | page["Not served"]
