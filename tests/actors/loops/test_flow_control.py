"""The default FlowSchemas and PriorityLevelConfigurations, and the status of FlowSchemas."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from in_process import InProcess, open_server
from trio.testing import MockClock, wait_all_tasks_blocked

from kubechronicle.actors.loops.bootstrap.flow_control import CONSUMER, INTERVAL, dangling, revised
from kubechronicle.api.builtin.flowcontrol import bootstrap
from kubechronicle.eventlog.memory.store import MemoryStore

FLOW = "/apis/flowcontrol.apiserver.k8s.io/v1"
SCHEMAS = f"{FLOW}/flowschemas"
LEVELS = f"{FLOW}/prioritylevelconfigurations"
LEVEL = bootstrap.level_specs()["system"]
OTHER = {"type": "Limited", "limited": {**LEVEL["limited"], "nominalConcurrencyShares": 7}}


def held(name: str, spec: Any, note: str | None = None, generation: int = 1) -> dict[str, Any]:
    annotations = {} if note is None else {"annotations": {bootstrap.AUTOUPDATE: note}}
    return {"metadata": {"name": name, "generation": generation, **annotations}, "spec": spec}


@pytest.mark.parametrize(
    ("obj", "spec", "note"),
    [
        (held("system", LEVEL, "true"), None, None),
        (held("system", OTHER, "true"), LEVEL, "true"),
        (held("system", OTHER, "false"), None, None),
        (held("system", OTHER, generation=1), LEVEL, "true"),
        (held("system", OTHER, generation=2), OTHER, "false"),
        (held("system", LEVEL, "yes", generation=2), LEVEL, "false"),
        (held("catch-all", OTHER, "false", generation=2), LEVEL, "true"),
    ],
)
def test_revisions(obj: dict[str, Any], spec: Any, note: str | None) -> None:
    new = revised(obj, LEVEL)
    if spec is None:
        assert new is None
        return
    assert new is not None
    assert (new["spec"], new["metadata"]["annotations"][bootstrap.AUTOUPDATE]) == (spec, note)


def test_the_shares_of_exempt_requests_may_change() -> None:
    wanted = bootstrap.level_specs()["exempt"]
    shares = {"type": "Exempt", "exempt": {"nominalConcurrencyShares": 9, "lendablePercent": 0}}
    assert revised(held("exempt", shares, "true"), wanted) is None


def test_conditions() -> None:
    schema = {"spec": {"priorityLevelConfiguration": {"name": "x"}}}
    missing = dangling(schema, exists=False)
    assert missing is not None
    assert (missing["status"], missing["reason"]) == ("True", "NotFound")
    found = {**schema, "status": {"conditions": [{**missing, "lastTransitionTime": "t"}]}}
    assert dangling(found, exists=False) is None
    assert (dangling(found, exists=True) or {})["status"] == "False"


async def names(server: InProcess, path: str) -> set[str]:
    return {item["metadata"]["name"] for item in (await server.get(path))["items"]}


async def test_the_first_server_creates_them_and_the_second_finds_them(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    async with open_server(store, loops=True) as server:
        assert await names(server, LEVELS) == set(bootstrap.level_specs())
        assert await names(server, SCHEMAS) == set(bootstrap.schema_specs())
        await wait_all_tasks_blocked()
        probes = await server.get(f"{SCHEMAS}/probes")
        assert probes["spec"] == bootstrap.schema_specs()["probes"]
        (condition,) = probes["status"]["conditions"]
        assert condition["reason"] == "Found"
        managers = [(entry["manager"], entry.get("subresource")) for entry in probes["metadata"]["managedFields"]]
        assert (CONSUMER, "status") in managers
        before = store.head().revision
    async with open_server(store, loops=True):
        await wait_all_tasks_blocked()
        kinds = {row.key.resource for row in store.rows(after=before)}
        assert not {kind for kind in kinds if "flowcontrol" in kind}


async def test_deleted_ones_come_back_and_old_ones_go(autojump_clock: MockClock) -> None:
    async with open_server(MemoryStore(), loops=True) as server:
        await server.delete(f"{SCHEMAS}/probes")
        old = {"metadata": {"name": "old", "annotations": {bootstrap.AUTOUPDATE: "true"}}, "spec": LEVEL}
        await server.post(LEVELS, old)
        mine = {
            "metadata": {"name": "mine"},
            "spec": {"priorityLevelConfiguration": {"name": "nowhere"}, "matchingPrecedence": 50},
        }
        await server.post(SCHEMAS, mine)
        await wait_all_tasks_blocked()
        (condition,) = (await server.get(f"{SCHEMAS}/mine"))["status"]["conditions"]
        assert condition["reason"] == "NotFound"
        await trio.sleep(INTERVAL + 1)
        assert await names(server, SCHEMAS) == {*bootstrap.schema_specs(), "mine"}
        assert await names(server, LEVELS) == set(bootstrap.level_specs())
