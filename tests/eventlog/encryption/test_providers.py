"""Providers in order, resources with wildcards, and the stored form of encrypted objects."""

from __future__ import annotations

import orjson
import pytest

from kubechronicle.eventlog.encryption.contents import EncryptedContents
from kubechronicle.eventlog.encryption.errors import TransformError
from kubechronicle.eventlog.encryption.providers import ProviderChain
from kubechronicle.eventlog.encryption.statistics import EncryptionStatistics
from kubechronicle.eventlog.records import Key
from tests.support.encryption.providers import chain, contents

ABOUT = b"/registry/secrets/default/a"
BODY = b'{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"},"data":{"x":"cGxhbnRlZA=="}}'
KEY = Key("secrets", "default", "a")


def value(one: ProviderChain) -> bytes:
    return b"".join(one.encrypt("secrets", b"{secret", ABOUT))


@pytest.mark.parametrize(
    ("written", "read", "stale"),
    [
        (["aesgcm:a"], ["aesgcm:a"], False),
        (["aesgcm:a"], ["aesgcm:ba"], True),  # a second key
        (["aesgcm:a"], ["secretbox:b", "aescbc:c", "aesgcm:a", "identity"], True),
        (["identity"], ["aesgcm:a", "identity"], True),
        (["identity"], ["identity", "aesgcm:a"], False),
        (["aesgcm:a"], ["identity", "aesgcm:a"], True),
        (["aesgcm:a"], ["aesgcm:b", "aesgcm:a"], True),  # two providers with one prefix
    ],
)
def test_the_first_provider_writes_and_all_read(written: list[str], read: list[str], stale: bool) -> None:
    assert chain(*read).decrypt("secrets", value(chain(*written)), ABOUT) == (b"{secret", stale)


@pytest.mark.parametrize(
    ("written", "read", "text"),
    [
        (["aesgcm:a"], ["identity"], "no matching prefix found"),
        (["identity"], ["aesgcm:a"], "no matching prefix found"),
        (["aesgcm:a"], ["secretbox:a", "identity"], "no matching prefix found"),
        (["aesgcm:a"], ["aesgcm:b"], "no matching key was found for the provided AES transformer"),
        (
            ["aesgcm:a"],
            ["aesgcm:b", "aesgcm:c", "identity"],
            "no matching key was found for the provided AES transformer",
        ),
    ],
)
def test_a_value_that_no_provider_reads_has_the_error_of_kube_apiserver(
    written: list[str], read: list[str], text: str
) -> None:
    with pytest.raises(TransformError) as raised:
        chain(*read).decrypt("secrets", value(chain(*written)), ABOUT)
    assert str(raised.value) == text


def test_another_key_of_the_same_name_fails_to_decrypt() -> None:
    changed = value(chain("aesgcm:a")).replace(b":a:", b":b:", 1)
    with pytest.raises(TransformError, match="cipher: message authentication failed"):
        chain("aesgcm:b", "identity").decrypt("secrets", changed, ABOUT)


def test_the_most_specific_configuration_of_a_resource_counts() -> None:
    chains = {name: chain("identity") for name in ("secrets", "*.", "deployments.apps", "*.apps", "*.*", "events")}
    configured = EncryptedContents(chains)
    expected = {
        "secrets": "secrets",
        "configmaps": "*.",
        "deployments.apps": "deployments.apps",
        "replicasets.apps": "*.apps",
        "widgets.example.com": "*.*",
        "events.events.k8s.io": "events",
    }
    for resource, name in expected.items():
        assert configured.chain_for(resource) is chains[name]
    assert configured.chain_for("erasures.history.kubechronicle.dev") is None
    configured.use({"*.example.com": chains["*."]})
    assert configured.chain_for("secrets") is None
    assert configured.chain_for("widgets.example.com") is chains["*."]


def test_a_stored_object_shows_its_provider_and_kind_alone() -> None:
    both = contents("aesgcm:a", "identity")
    stored = both.encrypted(KEY, BODY)
    form = orjson.loads(stored)
    assert list(form) == ["encrypted", "apiVersion", "kind", "data"]
    assert (form["encrypted"], form["apiVersion"], form["kind"]) == ("k8s:enc:aesgcm:v1:a:", "v1", "Secret")
    assert b"cGxhbnRlZA" not in stored
    assert both.decrypted_nowait(KEY, stored) == (BODY, False)
    assert both.decrypted_nowait(KEY, BODY) == (BODY, True)


def test_an_object_is_bound_to_its_key() -> None:
    one = contents("aesgcm:a")
    stored = one.encrypted(KEY, BODY)
    for other in (Key("secrets", "default", "b"), Key("secrets", "other", "a"), Key("configmaps", "default", "a")):
        with pytest.raises(TransformError, match="cipher: message authentication failed"):
            one.decrypted_nowait(other, stored)


def test_without_a_configuration_encrypted_objects_are_refused() -> None:
    stored = contents("aesgcm:a").encrypted(KEY, BODY)
    with pytest.raises(TransformError, match="identity transformer tried to read encrypted data"):
        EncryptedContents().decrypted_nowait(KEY, stored)
    assert EncryptedContents().decrypted_nowait(KEY, BODY) == (BODY, False)


@pytest.mark.parametrize("data", [b'"?"', b"1", b"null", b'"YQ"'])
def test_a_mangled_form_is_an_error(data: bytes) -> None:
    with pytest.raises(TransformError, match="the stored data is not an encrypted object"):
        contents("aesgcm:a").decrypted_nowait(KEY, b'{"encrypted":"k8s:enc:aesgcm:v1:a:","data":%b}' % data)


def test_the_remains_of_an_erased_object_pass() -> None:
    body = b'{"erased":"x","apiVersion":"v1","kind":"Secret","metadata":{"name":"a"}}'
    assert contents("aesgcm:a").decrypted_nowait(KEY, body) == (body, False)


def test_operations_are_counted_by_prefix_and_status() -> None:
    statistics = EncryptionStatistics()
    both = chain("aesgcm:a", "identity", statistics=statistics)
    both.decrypt("secrets", value(both), ABOUT)
    both.decrypt("secrets", b"{}", ABOUT)
    with pytest.raises(TransformError):
        both.decrypt("secrets", b"k8s:enc:aesgcm:v1:c:x", ABOUT)
    outer = "k8s:enc:aesgcm:v1:"
    assert statistics.operations == {
        ("secrets", "to_storage", outer, "OK"): 1,
        ("secrets", "to_storage", "a:", "OK"): 1,
        ("secrets", "from_storage", outer, "OK"): 1,
        ("secrets", "from_storage", "a:", "OK"): 1,
        ("secrets", "from_storage", "identity", "OK"): 1,
        ("secrets", "from_storage", "unknown", "unknown-non-grpc"): 1,
        ("secrets", "from_storage", outer, "unknown-non-grpc"): 1,
    }
    assert sum(statistics.seconds["from_storage", outer].counts) == 1
