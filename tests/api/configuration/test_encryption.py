"""EncryptionConfiguration: the rules and messages of kube-apiserver (compared with k8s.io/apiserver v0.36.3)."""

from __future__ import annotations

import base64

import pytest

from kubechronicle.api.configuration import encryption
from kubechronicle.api.configuration.encryption import load, secret_of
from kubechronicle.api.configuration.files import ConfigFileError

HEAD = "kind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/v1\n"
K32 = base64.b64encode(bytes(32)).decode()
K16 = base64.b64encode(bytes(16)).decode()
KEY = "{keys: [{name: a, secret: %s}]}" % K32  # noqa: UP031


def of(resources: str, *providers: str) -> str:
    return f"- resources: {resources}\n  providers:\n" + "".join(f"  - {each}\n" for each in providers)


AES = f"aesgcm: {KEY}"
FIRST = "resources[0].providers[0]"


def one(resources: str, *providers: str) -> str:
    return HEAD + "resources:\n" + of(resources, *(providers or (AES,)))


def problem(text: str) -> str:
    with pytest.raises(ConfigFileError) as raised:
        load(text.encode())
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_a_configuration_of_all_providers() -> None:
    kms = "kms: {apiVersion: v2, name: v, endpoint: 'unix:///run/kms.sock', timeout: 500ms}"
    text = one("[secrets, '*.apps']", AES, f"aescbc: {KEY}", f"secretbox: {KEY}", kms, "identity: {}")
    (entry,) = load(text.encode()).resources
    assert entry.resources == ("secrets", "*.apps")
    assert [each.kms is not None for each in entry.providers] == [False, False, False, True, False]
    assert entry.providers[3].kms is not None
    assert entry.providers[3].kms.timeout == 500_000_000
    assert entry.providers[0].aesgcm is not None
    assert secret_of(entry.providers[0].aesgcm.keys[0]) == bytes(32)
    assert K32 not in repr(entry)


def test_base64_may_have_line_breaks_as_in_go() -> None:
    lines = f"{HEAD}resources:\n- resources: [secrets]\n  providers:\n  - aesgcm:\n      keys:\n      - name: a\n"
    lines += f"        secret: |\n          {K32[:20]}\n          {K32[20:]}\n"
    assert load(lines.encode()).resources


BAD_NAMES = {
    "Secrets": encryption.CAPITALS,
    "'*'": encryption.STAR,
    "serviceipallocations": encryption.NOT_SERVED,
    "events.events.k8s.io": encryption.EVENTS,
    "'*.extensions'": encryption.EXTENSIONS,
    "'pods.*'": encryption.ACROSS_GROUPS,
}


@pytest.mark.parametrize("name", BAD_NAMES)
def test_names_of_resources(name: str) -> None:
    shown = name.strip("'")
    assert problem(one(f"[{name}]")) == (f'resources[0].resources[0]: Invalid value: "{shown}": {BAD_NAMES[name]}')


@pytest.mark.parametrize(
    ("resources", "found"),
    [
        ("[secrets, secrets]", [encryption.DUPLICATE]),
        ("[secrets, '*.']", [encryption.OVERLAP]),
        ("['*.*', pods]", [encryption.OVERLAP]),
        ("['*.', '*.']", [encryption.DUPLICATE, encryption.OVERLAP]),
        ("['*.apps', pods]", []),
    ],
)
def test_overlaps_within_an_entry(resources: str, found: list[str]) -> None:
    if not found:
        assert load(one(resources).encode())
        return
    text = problem(one(resources))
    assert [each for each in (encryption.DUPLICATE, encryption.OVERLAP) if each in text] == found


@pytest.mark.parametrize(
    ("first", "second", "masked", "by"),
    [
        ("'*.apps'", "deployments.apps", "deployments.apps", "*.apps"),
        ("'*.*'", "secrets", "secrets", "*.*"),
        ("'*.'", "secrets", "secrets", "*."),
        ("'*.'", "'*.'", "*.", "*."),
    ],
)
def test_entries_that_an_earlier_wildcard_covers(first: str, second: str, masked: str, by: str) -> None:
    text = HEAD + "resources:\n" + of(f"[{first}]", AES) + of(f"[{second}]", AES)
    assert problem(text) == (f'error while building transformers: resource "{masked}" is masked by earlier rule "{by}"')


@pytest.mark.parametrize(
    ("provider", "found"),
    [
        ("{}", encryption.NO_PROVIDER),
        (f"{{identity: {{}}, aesgcm: {KEY}}}", encryption.SEVERAL),
        ("aesgcm: {keys: []}", f"{FIRST}.aesgcm.keys: Required value: at least one keys is required"),
        (
            "aescbc: {keys: [{name: a, secret: '??'}]}",
            'secret: Invalid value: "REDACTED": secrets must be base64 encoded',
        ),
        ("aescbc: {keys: [{name: a, secret: YQ==}]}", "got 1, expected one of [16 24 32]"),
        (f"secretbox: {{keys: [{{name: a, secret: {K16}}}]}}", "got 16, expected one of [32]"),
        (
            f"secretbox: {{keys: [{{secret: {K32}}}]}}",
            "keys[0].name: Required value: name is a mandatory field",
        ),
        ("secretbox: {keys: [{name: a}]}", "keys[0].secret: Required value: secret is a mandatory field for a key"),
        ("aesgcm: {keyz: []}", 'strict decoding error: unknown field "resources[0].providers[0].aesgcm.keyz"'),
        ("identity: {x: 1}", 'unknown field "resources[0].providers[0].identity.x"'),
        ("kms: {name: a, endpoint: 'unix:///x'}", encryption.KMS_V1),
        ("kms: {apiVersion: v3, name: a, endpoint: 'unix:///x'}", "only v1 and v2 are supported"),
        ("kms: {apiVersion: v2, endpoint: 'unix:///x'}", "kms.name: Required value: name is a mandatory field"),
        (
            "kms: {apiVersion: v2, name: 'a:b', endpoint: 'unix:///x'}",
            "KMS provider name a:b, must not contain",
        ),
        ("kms: {apiVersion: v2, name: a}", 'kms.endpoint: Invalid value: "": endpoint is a mandatory field for a kms'),
        ("kms: {apiVersion: v2, name: a, endpoint: 'http://x'}", 'unsupported scheme "http" for KMS provider'),
        ("kms: {apiVersion: v2, name: a, endpoint: 'unix:///x', cachesize: 1}", "cachesize is not supported in v2"),
        (
            "kms: {apiVersion: v2, name: a, endpoint: 'unix:///x', timeout: 0s}",
            'Invalid value: "0s": timeout',
        ),
    ],
)
def test_providers(provider: str, found: str) -> None:
    text = problem(one("[secrets]", provider))
    assert found in text
    assert K32 not in text


def test_a_key_service_of_kms_v1_needs_its_gate() -> None:
    text = one("[secrets]", "kms: {name: a, endpoint: 'unix:///x', cachesize: 5}")
    assert problem(text) == (
        "error while building transformers: KMSv1 is deprecated and will only receive security updates going forward. "
        "Use KMSv2 instead.  Set --feature-gates=KMSv1=true to use the deprecated KMSv1 feature."
    )
    (kms,) = encryption.key_services(encryption.load(text.encode(), kms_v1=True))
    assert (encryption.version_of(kms), kms.cachesize) == ("v1", 5)


def test_names_of_key_services_are_unique() -> None:
    kms = "kms: {apiVersion: v2, name: a, endpoint: 'unix:///x'}"
    assert problem(one("[secrets]", kms, kms)) == (
        'resources[0].providers[1].kms.name: Invalid value: "a": duplicate KMS provider name a, names must be unique'
    )


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (HEAD, "resources: Required value: at least one resources is required"),
        (HEAD.replace("/v1", "/v2"), 'no kind "EncryptionConfiguration" is registered for version'),
        (HEAD + "resources: []\nresources: []\n", 'key "resources" already set in map'),
    ],
)
def test_the_file_itself(text: str, found: str) -> None:
    assert found in problem(text)
