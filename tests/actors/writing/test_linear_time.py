"""The work of a write is linear in its body: twice as many items in any list or map take less than 2.6 times as long.

In `make test` each field of each type grows once, in one kind. With KUBECHRONICLE_TEST_LINEAR=all, it grows in every
kind that has it, with all variants of items, up to bodies of 256 KB; this takes an hour, and prints what it finds.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
from growing_objects import DISTINCT, TOGETHER, VARIANTS, WRONG, Place, grown, places, reversed_at
from in_process import InProcess
from services import open_services
from write_timing import Steps, encoded, seconds_of, settled, stored_entry

from kubechronicle.api.registry.registry import ResourceType, builtin_registry

pytestmark = pytest.mark.alone

ALL = os.environ.get("KUBECHRONICLE_TEST_LINEAR") == "all"
LARGEST = (256 if ALL else 40) * 1024  # bytes of a body
TIMES = 4  # the larger body has this many times the items of the smaller one
FACTOR = 2.6**2  # so that the time may grow by this
SHORT = 0.05  # a time in seconds that may have any cause
LEAST = 0.004

Case = tuple[ResourceType, Place, str]
Prepared = Callable[[int], Callable[[], str]]
"""Make the write of an object with this many items."""


def cases(*variants: str, created: bool) -> Iterator[Case]:
    """Yield what grows: in the short form, each field of each type once, in the first kind that has it."""
    seen: set[tuple[str, str]] = set()
    for rt in builtin_registry():
        if not rt.definition or not (rt.stored or created):
            continue
        for place in places(rt):
            if ALL:
                yield from ((rt, place, variant) for variant in VARIANTS)
            elif (place.definition, place.field) not in seen:
                first = place.definition not in {definition for definition, _ in seen}
                seen.add((place.definition, place.field))
                yield from ((rt, place, variant) for variant in variants if variant != TOGETHER or first)


def most_items(rt: ResourceType, place: Place, variant: str) -> int:
    each = (len(encoded(grown(rt, place, 64, variant))) - len(encoded(grown(rt, place, 32, variant)))) / 32
    return max(TIMES, int(LARGEST / each))


def superlinear(name: str, most: int, prepared: Prepared) -> str:
    """Return a description of a case whose time grows too fast, "" otherwise. A doubt is measured three times."""
    small, large = prepared(most // TIMES), prepared(most)
    times = [seconds_of(small), seconds_of(large)]
    for left in range(3, -1, -1):
        if times[1] < SHORT or times[1] < FACTOR * max(times[0], LEAST):
            return ""
        if left:
            times = [min(times[0], seconds_of(small)), min(times[1], seconds_of(large))]
    found = f"{name}: {times[0] * 1000:.0f} ms for {most // TIMES} items, {times[1] * 1000:.0f} ms for {most}"
    if ALL:
        print(found, flush=True)
    return found


def creation(steps: Steps, case: Case) -> Prepared:
    rt, place, variant = case

    def prepared(count: int) -> Callable[[], str]:
        body = encoded(grown(rt, place, count, variant))
        return lambda: steps.create(rt, body)

    return prepared


def change(steps: Steps, case: Case) -> Prepared:
    """Make an update that turns the items round, through the status where they are there."""
    rt, place, variant = case
    subresource = "status" if place.path[0] == "status" and "status" in rt.subresources else ""

    def prepared(count: int) -> Callable[[], str]:
        obj = grown(rt, place, count, variant)
        old, body = stored_entry(rt, obj), encoded(reversed_at(obj, place))
        return lambda: steps.update(rt, old, body, subresource)

    return prepared


@pytest.mark.parametrize(("write", "variants"), [(creation, (DISTINCT, WRONG, TOGETHER)), (change, (DISTINCT,))])
async def test_every_list_and_map_takes_linear_time(
    write: Callable[[Steps, Case], Prepared], variants: tuple[str, ...]
) -> None:
    async with open_services() as server:
        await create_what_writes_depend_on(server)
        settled()
        steps = Steps(server)
        found = [
            superlinear(f"{rt.api_version} {rt.kind} {place} ({variant})", most_items(rt, place, variant), prepared)
            for rt, place, variant in cases(*variants, created=write is creation)
            for prepared in [write(steps, (rt, place, variant))]
        ]
    assert "\n".join(filter(None, found)) == ""


def test_quadratic_time_is_noticed() -> None:
    def search(count: int) -> Callable[[], str]:
        listed = list(map(str, range(count)))
        return lambda: str(sum(each in listed for each in listed))

    def look_up(count: int) -> Callable[[], str]:
        known = set(map(str, range(count)))
        return lambda: str(sum(each in known for each in known))

    assert superlinear("search", 8000, search).startswith("search: ")
    assert superlinear("look_up", 200_000, look_up) == ""


async def create_what_writes_depend_on(server: InProcess) -> None:
    """Create quotas and limits for pods and others, and a role of the requester."""
    rules = [{"verbs": ["get"], "apiGroups": [f"g{each}", ""], "resources": [f"r{each}", "pods"]} for each in range(20)]
    roles = "/apis/rbac.authorization.k8s.io/v1/clusterrole"
    await server.post(f"{roles}s", {"metadata": {"name": "some"}, "rules": rules})
    group = "rbac.authorization.k8s.io"
    binding = {
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "some"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "joe"}],
    }
    await server.post(f"{roles}bindings", {"metadata": {"name": "some"}, **binding})
    hard = {"pods": "1", "requests.cpu": "1", "services": "1", "count/configmaps": "1", "persistentvolumeclaims": "1"}
    quota = {"metadata": {"name": "some"}, "spec": {"hard": hard}}
    await server.post("/api/v1/namespaces/default/resourcequotas", quota)
    limits = [{"type": "Container", "max": {"cpu": "1"}, "default": {"cpu": "1"}}, {"type": "Pod", "max": {"cpu": "1"}}]
    await server.post("/api/v1/namespaces/default/limitranges", {"metadata": {"name": "a"}, "spec": {"limits": limits}})
    scheduling = {"tolerations": [{"key": "a", "operator": "Exists"}], "nodeSelector": {"a": "b"}}
    runtime = {"metadata": {"name": "some"}, "handler": "h", "scheduling": scheduling}
    await server.post("/apis/node.k8s.io/v1/runtimeclasses", runtime)
