"""docs/metrics.md: each family of kube-apiserver is either served or explained, as a running server shows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import yaml
from in_process import MAPS, PODS, configmap, open_server, pod
from trio.testing import MockClock

from kubechronicle.api.kinds import SERVED
from kubechronicle.ops.development.kinds import running

ROOT = Path(__file__).parents[3]
OWN = ("kubechronicle_", "python_")
LISTENER = {
    "apiserver_tls_handshake_errors_total",
    "kubechronicle_slow_clients_cut_off_total",
    "kubechronicle_witness_token_age_seconds",
}
"""Families of parts that a server without sockets or outside witnesses lacks."""


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


def expressions() -> Iterator[str]:
    """Yield the expressions of the alerts and of the dashboard."""
    folder = ROOT / "ops" / "monitoring"
    for group in yaml.safe_load((folder / "alerts.yaml").read_text())["groups"]:
        yield from (rule["expr"] for rule in group["rules"])
    for panel in json.loads((folder / "dashboard.json").read_text())["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))


async def test_alerts_and_the_dashboard_ask_for_families_that_are_served(autojump_clock: MockClock) -> None:
    served = await families() | sections()["Served if their part is on"] | LISTENER
    asked = {name for text in expressions() for name in re.findall(r"\b([a-z]+_[a-z_]+)\{", text)}
    assert len(asked) > 15
    assert not {name for name in asked if name not in served and re.sub("_(bucket|sum|count)$", "", name) not in served}


async def test_every_family_is_served_or_explained(autojump_clock: MockClock) -> None:
    found, page = await families(), sections()
    assert page.keys() == {"Served", "Served if their part is on", "Served besides", "Not served"}
    served = page["Served"] | page["Served besides"]
    assert served - found <= LISTENER
    assert not found & page["Not served"]
    unknown = {name for name in found - served - page["Served if their part is on"] if not name.startswith(OWN)}
    assert not unknown, f"docs/metrics.md lacks {sorted(unknown)}"
    listed = set(running.facts(SERVED)["metrics"])
    optional = page["Served if their part is on"]
    assert sorted(listed - page["Served"] - optional - page["Not served"]) == []
