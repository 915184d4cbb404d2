"""Erased contents are nowhere in the memory of a running server: neither in a cache, nor in freed blocks."""

from __future__ import annotations

import json
import re
import subprocess
import time
from pathlib import Path
from typing import Any

from harness import Server, configmap, eventually

MARK = "born-1970-01-01-of-jane-doe"
FORMS = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf")
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
MAPS = "/api/v1/namespaces/default/configmaps"
REVISIONS = "/apis/history.kubechronicle.dev/v1/namespaces/default/revisions"
WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"
GRACE = 60.0  # seconds: the server overwrites its memory three times in the first 15


def places(pid: int) -> list[bytes]:
    """Return the surroundings of the mark in the memory of a process, in all forms that Python has for texts."""
    pattern = re.compile(b"|".join(re.escape(MARK.encode(form)) for form in ("utf-8", "utf-16-le", "utf-32-le")))
    found = []
    with Path(f"/proc/{pid}/maps").open() as maps, Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line in maps:
            extent, access, *_ = line.split()
            if not access.startswith("rw"):
                continue
            begin, end = (int(each, 16) for each in extent.split("-"))
            memory.seek(begin)
            try:
                held = memory.read(end - begin)
            except OSError:
                continue
            found += [held[max(0, each.start() - 60) : each.end() + 20] for each in pattern.finditer(held)]
    return found


def widget(text: str) -> dict[str, Any]:
    spec = {"texts": {f"k{number}": f"{text}-{number}" + "x" * 60 for number in range(40)}}
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": spec}


def definition() -> dict[str, Any]:
    texts = {"type": "object", "additionalProperties": {"type": "string"}}
    spec = {"type": "object", "properties": {"texts": texts}}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [version],
        },
    }


def write_and_read(server: Server) -> None:
    """Send the mark through the ways that leave it in memory, and delete its objects."""
    api = server.api()
    watch, ahead = server.watch(f"{MAPS}?watch=1"), server.api()
    apply = {"Content-Type": "application/apply-patch+yaml"}
    merge = {"Content-Type": "application/merge-patch+json"}
    api.create(MAPS, configmap("jane", born=MARK))
    api.request("POST", f"{MAPS}?dryRun=All", configmap("tried", born=MARK)).expect(201)
    for number in range(3):
        body = {"data": {"born": f"{MARK}-{number}", "long": MARK + "y" * 2000}}
        api.request("PATCH", f"{MAPS}/jane", body, headers=merge).expect(200)
        api.request("PATCH", f"{WIDGETS}/w?fieldManager=a&force=true", widget(MARK), headers=apply).expect(200, 201)
        api.request("PATCH", f"{MAPS}/jane?fieldManager=b&force=true", configmap("jane", own=MARK), headers=apply)
    moment = api.get(f"{MAPS}/jane")["metadata"]["resourceVersion"]
    for form in (*FORMS, TABLE, f"{TABLE},application/json"):
        for encoding in ("identity", "gzip"):
            headers = {"Accept": form, "Accept-Encoding": encoding}
            for path in (MAPS, f"{MAPS}?includeObject=Object", f"{MAPS}/jane", f"{MAPS}?labelSelector=a!={MARK}"):
                api.request("GET", path, headers=headers)
    api.get(f"/history/at/{moment}{MAPS}")
    api.get(f"{REVISIONS}?content=states&limit=50")
    api.get(f"{REVISIONS}?limit=50")
    branch = {"apiVersion": "history.kubechronicle.dev/v1", "kind": "Branch", "metadata": {"name": "trial"}}
    api.request("POST", "/apis/history.kubechronicle.dev/v1/branches", branch)
    api.request("PATCH", f"/history/branches/trial{MAPS}/jane", {"data": {"more": MARK}}, headers=merge)
    api.request("DELETE", "/apis/history.kubechronicle.dev/v1/branches/trial")
    watch.take(5)
    for path in (f"{MAPS}/jane", f"{WIDGETS}/w"):
        api.request("DELETE", path).expect(200)
    api.close()
    ahead.close()
    watch.close()


def erase(server: Server, subject: str) -> None:
    arguments = ["erase", subject, "-n", "default", "--reason", "asked for", "--yes", *server.where()]
    done = subprocess.run([*server.command(), *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_nothing_of_an_erased_object_is_in_memory(own_server: Server) -> None:
    own_server.start()
    api = own_server.api()
    api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition())
    eventually(lambda: api.request("GET", WIDGETS).status == 200, "the definition is served")
    write_and_read(own_server)
    assert places(own_server.pid)
    erase(own_server, "configmap/jane")
    erase(own_server, "widgets.example.com/w")
    api.get(MAPS)
    end = time.monotonic() + GRACE
    while left := places(own_server.pid):
        assert time.monotonic() < end, json.dumps([str(each) for each in left[:8]], indent=1)
        time.sleep(0.5)
    own_server.verify()
