"""Encryption in a server: errors of objects without a key, keys that come back, rotation, and settings."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from in_process import Answer, open_server

from kubechronicle.api.configuration import encryption
from kubechronicle.eventlog.encryption.contents import EncryptedContents
from kubechronicle.eventlog.encryption.encrypted_log import EncryptedLog
from kubechronicle.eventlog.log import RevisionLog
from kubechronicle.eventlog.memory.memory_log import MemoryLog
from kubechronicle.eventlog.memory.store import MemoryStore
from kubechronicle.eventlog.records import Key
from kubechronicle.ops.cli import main
from kubechronicle.ops.exit_codes import MISTAKE
from kubechronicle.ops.server.encryption.chains import EncryptionPlan, build
from kubechronicle.ops.server.encryption.encryption import Encryption

SECRETS = "/api/v1/namespaces/default/secrets"
SECRET = {"metadata": {"name": "a", "labels": {"x": "y"}}, "stringData": {"text": "hidden"}}


def configuration(*keys: str, resources: tuple[str, ...] = ("secrets",), identity: bool = True) -> bytes:
    named = [{"name": key, "secret": base64.b64encode(key.encode() * 32).decode()} for key in keys]
    providers: list[Any] = [{"aesgcm": {"keys": named}}] if named else []
    providers += [{"identity": {}}] if identity else []
    document = {
        "kind": "EncryptionConfiguration",
        "apiVersion": "apiserver.config.k8s.io/v1",
        "resources": [{"resources": list(resources), "providers": providers}],
    }
    return json.dumps(document).encode()


def encrypted(*keys: str, **options: Any) -> dict[str, EncryptionPlan]:
    content = configuration(*keys, **options)
    return {"encryption": EncryptionPlan(configuration=encryption.load(content), file=Path("none"), content=content)}


def message(answer: Answer) -> str:
    assert answer.status == 500, answer.body
    return str(answer.json()["message"])


NO_KEY = "Internal error occurred: no matching key was found for the provided AES transformer"
NO_KEY_LISTED = NO_KEY.replace("no matching", 'unable to transform key "/registry/secrets/default/a": no matching')


async def test_objects_without_a_key_are_errors_and_come_back_with_it() -> None:
    store = MemoryStore()
    async with open_server(store, other=encrypted("k")) as server:
        await server.post(SECRETS, SECRET)
        await server.post("/api/v1/namespaces/default/configmaps", {"metadata": {"name": "c"}})
    async with open_server(store, other=encrypted("q")) as server:
        for target in (SECRETS + "/a", f"/history/at/2{SECRETS}/a"):
            assert message(await server.ask("GET", target)) == NO_KEY
        one = SECRETS + "?fieldSelector=metadata.name%3Da"
        for target in (
            SECRETS,
            "/api/v1/secrets?limit=1",
            SECRETS + "?labelSelector=none",
            one,
            f"/history/at/2{SECRETS}",
        ):
            assert message(await server.ask("GET", target)) == NO_KEY_LISTED
        assert (await server.get("/api/v1/namespaces/other/secrets"))["items"] == []
        assert (await server.get(SECRETS + "?fieldSelector=metadata.name%3Db"))["items"] == []
        assert message(await server.ask("GET", SECRETS + "?watch=true")) == NO_KEY_LISTED
        for method, body in (("DELETE", None), ("PUT", SECRET)):
            assert message(await server.ask(method, SECRETS + "/a", body)) == NO_KEY
        assert message(await server.ask("DELETE", SECRETS)) == NO_KEY_LISTED
        assert (await server.ask("POST", SECRETS, SECRET)).status == 409
        revisions = "/apis/history.kubechronicle.dev/v1/namespaces/default/revisions"
        for content in ("", "?content=states", "?content=full"):
            (found,) = [each for each in (await server.get(revisions + content))["items"] if "problem" in each]
            assert (found["redacted"], found["object"]["name"]) == (True, "a")
            assert not found.keys() & {"after", "changed", "diff"}
        async with server.watch(SECRETS + "?watch=true&resourceVersion=1") as events:
            event = await events.next()
            assert event is not None
            assert (event["type"], event["object"]["message"]) == ("ERROR", NO_KEY)
            assert await events.next() is None
        loaded = encryption.load(configuration("q", "k"))
        contents = server.assembly.tail._log.contents  # type: ignore[attr-defined]
        contents.use(build(loaded, contents.statistics).chains)
        async with server.watch(SECRETS + "?watch=true&resourceVersion=1") as events:
            event = await events.next()
            assert event is not None
            assert (event["type"], event["object"]["metadata"]["labels"]) == ("ADDED", {"x": "y"})
        assert len((await server.get(SECRETS + "?labelSelector=x%3Dy"))["items"]) == 1
        await server.delete(SECRETS + "/a")


async def test_an_unchanged_write_moves_an_object_to_the_key_of_today() -> None:
    store = MemoryStore()
    async with open_server(store) as server:
        created = await server.post(SECRETS, SECRET)
    async with open_server(store, other=encrypted("k")) as server:
        first = created["metadata"]["resourceVersion"]
        dry = await server.patch(SECRETS + "/a?dryRun=All", {})
        assert dry["metadata"]["resourceVersion"] == first
        moved = await server.patch(SECRETS + "/a", {})
        assert moved["metadata"]["resourceVersion"] != first
        assert {**moved, "metadata": 0} == {**created, "metadata": 0}
        assert moved["metadata"]["managedFields"] == created["metadata"]["managedFields"]
        assert await server.patch(SECRETS + "/a", {}) == moved
    revision = int(moved["metadata"]["resourceVersion"])
    row = await MemoryLog(store).get_at(Key("secrets", "default", "a"), revision=revision)
    assert row is not None
    assert b"k8s:enc:aesgcm:v1:k:" in row.body
    async with open_server(store, other=encrypted("n", "k")) as server:
        again = await server.put(SECRETS + "/a", moved)
        assert again["metadata"]["resourceVersion"] != moved["metadata"]["resourceVersion"]


WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
HOOK = {
    "name": "a.example.com",
    "clientConfig": {"url": "https://127.0.0.1:1/"},
    "admissionReviewVersions": ["v1"],
    "sideEffects": "None",
    "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["secrets"]}],
}
ADMISSION = ("*.admissionregistration.k8s.io",)


async def test_rules_fail_closed_and_the_server_is_not_ready_without_what_they_need() -> None:
    store = MemoryStore()
    async with (
        open_server(store, other=encrypted("q", resources=ADMISSION)) as server,
        open_server(store, other=encrypted("k", resources=ADMISSION)) as keeper,
    ):
        assert (await server.ask("GET", "/readyz")).status == 200
        await keeper.post(WEBHOOKS, {"metadata": {"name": "w"}, "webhooks": [HOOK]})
        assert (await server.ask("GET", WEBHOOKS)).status == 500
        configmaps = "/api/v1/namespaces/default/configmaps"
        refused = message(await server.ask("POST", configmaps, {"metadata": {"name": "c"}}))
        assert "validatingwebhookconfigurations.admissionregistration.k8s.io" in refused
        assert "no matching key was found" in refused
        ready = await server.ask("GET", "/readyz")
        assert (ready.status, b"[-]informer-sync failed" in ready.body) == (500, True)
        assert (await server.ask("GET", "/livez")).status == 200


async def test_a_server_waits_at_its_start_for_the_keys_of_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    async with open_server(store, other=encrypted("k", resources=ADMISSION)) as keeper:
        await keeper.post(WEBHOOKS, {"metadata": {"name": "w"}, "webhooks": [HOOK]})
    waiting: list[EncryptedContents] = []
    over = Encryption.over

    def remembered(self: Encryption, log: RevisionLog) -> EncryptedLog:
        waiting.append(self.contents)
        return over(self, log)

    monkeypatch.setattr(Encryption, "over", remembered)
    started = trio.Event()

    async def start() -> None:
        async with open_server(store, other=encrypted("q", resources=ADMISSION)) as server:
            started.set()
            assert len((await server.get(WEBHOOKS))["items"]) == 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(start)
        await trio.testing.wait_all_tasks_blocked(0.2)
        assert not started.is_set()
        (contents,) = waiting
        contents.use(build(encryption.load(configuration("q", "k", resources=ADMISSION)), contents.statistics).chains)


@pytest.mark.parametrize(
    ("flags", "file", "problem"),
    [
        (
            ["--encryption-provider-config-automatic-reload"],
            None,
            "--encryption-provider-config-automatic-reload must be set with --encryption-provider-config",
        ),
        ([], b"", "empty config data"),
        ([], configuration(), ""),
        ([], configuration("k", resources=()), "resources[0].resources: Required value: at least one"),
        ([], configuration("k").replace(b"aesgcm", b"aesxyz"), 'unknown field "resources[0].providers[0].aesxyz"'),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(
    tmp_path: Path, flags: list[str], file: bytes | None, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if not problem:
        assert encryption.load(file or b"").resources
        return
    path = tmp_path / "encryption.json"
    if file is not None:
        path.write_bytes(file)
        flags = [*flags, "--encryption-provider-config", str(path)]
    assert main(["serve", "--data-dir", str(tmp_path / "data"), *flags]) == MISTAKE
    output = capsys.readouterr().err
    assert problem in output
    assert output.count("\n") == 1
    assert base64.b64encode(b"k" * 32).decode() not in output
