"""Small Pods that LimitRanges make large: no pass of the event loop is long."""

from __future__ import annotations

import pytest
from in_process import PODS, open_server
from stalls.longest_pass import passes_below

NAMESPACE = "/api/v1/namespaces/default"
LONGEST = 0.06
"""Seconds of CPU of a pass."""


@pytest.mark.parametrize(("containers", "names", "code"), [(200, 1_000, 422), (100, 150, 201), (1, 30_000, 422)])
async def test_many_defaults_for_many_containers(containers: int, names: int, code: int) -> None:
    """The code is 422 where the annotation that names all defaults is too long."""
    amounts = {f"a/{number}": "1" for number in range(names)}
    defaults = {"type": "Container", "default": amounts, "defaultRequest": amounts, "max": amounts}
    limits = {"limits": [defaults, {"type": "Pod", "max": {name: str(containers) for name in amounts}}]}
    pod = {
        "metadata": {"name": "a"},
        "spec": {"containers": [{"name": f"c{number}", "image": "i"} for number in range(containers)]},
    }
    async with open_server() as server:
        await server.post(f"{NAMESPACE}/limitranges", {"metadata": {"name": "l"}, "spec": limits})
        with passes_below(LONGEST):
            answer = await server.ask("POST", f"{PODS}?dryRun=All", pod)
        assert answer.status == code
        with passes_below(LONGEST):
            answer = await server.ask("POST", PODS, pod)
        assert answer.status == code
        if code == 201:
            resources = answer.ok()["spec"]["containers"][-1]["resources"]
            assert resources == {"limits": amounts, "requests": amounts}
