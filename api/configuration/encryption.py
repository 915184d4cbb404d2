"""EncryptionConfiguration (apiserver.config.k8s.io/v1): the file of --encryption-provider-config.

    kind: EncryptionConfiguration
    resources:
    - resources: [secrets, '*.example.com']
      providers:
      - aesgcm: {keys: [{name: key1, secret: <base64 of 16, 24 or 32 bytes>}]}
      - identity: {}

The rules, field paths and messages are those of k8s.io/apiserver/pkg/apis/apiserver/validation and of
pkg/server/options/encryptionconfig. No message shows a secret.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from kubechronicle.api.configuration.files import ConfigFileError, decode
from kubechronicle.api.configuration.structuring import Duration
from kubechronicle.api.errors.field_errors import Cause, Path, aggregate, go_quote, invalid_value, required
from kubechronicle.api.values import durations

VERSIONS: Final = ("v1",)
DEFAULT_TIMEOUT: Final = Duration(3 * durations.SECOND)
DEFAULT_CACHE_SIZE: Final = 1000
"""Keys of KMS v1 in memory."""
V1, V2 = "v1", "v2"
AES_SIZES: Final = (16, 24, 32)
SECRETBOX_SIZES: Final = (32,)
REDACTED: Final = "REDACTED"
EVERYTHING: Final = "*.*"

KMS_V1_GATE: Final = "KMSv1"
KMS_V1: Final = "KMSv1 is deprecated and will only receive security updates going forward. Use KMSv2 instead."
NO_KMS_V1: Final = f"{KMS_V1}  Set --feature-gates={KMS_V1_GATE}=true to use the deprecated KMSv1 feature."
NO_PROVIDER: Final = "provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity"
SEVERAL: Final = "more than one provider specified in a single element, should split into different list elements"
OVERLAP: Final = (
    "using overlapping resources such as 'secrets' and '*.' in the same resource list is not allowed as they will be "
    "masked"
)
DUPLICATE: Final = "the same resource cannot be specified multiple times"
CAPITALS: Final = "resource name should not contain capital letters"
STAR: Final = "use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources"
NOT_SERVED: Final = "resources which do not have REST API/s cannot be encrypted"
EVENTS: Final = (
    "'*.events.k8s.io' objects are stored using the 'events' API group in etcd. Use 'events' instead in the config file"
)
EXTENSIONS: Final = "'extensions' group has been removed and cannot be used for encryption"
ACROSS_GROUPS: Final = "encrypting the same resource across groups is not supported"


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptionKey:
    """``secret``: base64."""

    GO_NAME = "Key"

    name: str = ""
    secret: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AESConfiguration:
    keys: tuple[EncryptionKey, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretboxConfiguration:
    keys: tuple[EncryptionKey, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityConfiguration:
    """Nothing to configure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KMSConfiguration:
    """``cachesize``: keys in memory, of KMS v1 alone. ``timeout``: of each call, in nanoseconds."""

    api_version: str = ""
    name: str = ""
    cachesize: int | None = None
    endpoint: str = ""
    timeout: Duration | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderConfiguration:
    """Exactly one of these."""

    aesgcm: AESConfiguration | None = None
    aescbc: AESConfiguration | None = None
    secretbox: SecretboxConfiguration | None = None
    identity: IdentityConfiguration | None = None
    kms: KMSConfiguration | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceConfiguration:
    """``resources``: "secrets", "widgets.example.com", "*.apps", "*." (the core group), "*.*"."""

    resources: tuple[str, ...] = ()
    providers: tuple[ProviderConfiguration, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptionConfiguration:
    resources: tuple[ResourceConfiguration, ...] = ()


def version_of(kms: KMSConfiguration) -> str:
    """Return the version of a key service's protocol."""
    return kms.api_version or V1


def key_services(configuration: EncryptionConfiguration) -> Iterator[KMSConfiguration]:
    """Yield the key services of a configuration."""
    for one in configuration.resources:
        for provider in one.providers:
            if provider.kms is not None:
                yield provider.kms


def load(data: bytes, *, kms_v1: bool = False) -> EncryptionConfiguration:
    """Return the content of a file that passes all rules. ConfigFileError: one line without secrets.

    ``kms_v1``: key services of KMS v1 are allowed.
    """
    try:
        configuration = decode(data, EncryptionConfiguration, versions=VERSIONS)
    except ConfigFileError as error:
        raise ConfigFileError(" ".join(str(error).split())) from None
    if causes := list(_causes(configuration)):
        raise ConfigFileError(aggregate(causes))
    _check_masking(configuration, kms_v1=kms_v1)
    return configuration


def secret_of(key: EncryptionKey) -> bytes:
    """Return the bytes of a key that has passed the rules."""
    return base64.b64decode(_without_line_breaks(key.secret), validate=True)


def _without_line_breaks(text: str) -> str:
    """Return base64 as Go decodes it: line breaks are ignored."""
    return text.replace("\n", "").replace("\r", "")


# -- rules ------------------------------------------------------------------------------------------------------------


def _causes(configuration: EncryptionConfiguration) -> Iterator[Cause]:
    root = Path("resources")
    if not configuration.resources:
        yield required(root, "at least one resources is required")
    names: set[str] = set()
    for index, one in enumerate(configuration.resources):
        resources, providers = root.index(index).child("resources"), root.index(index).child("providers")
        if not one.resources:
            yield required(resources, f"at least one {resources} is required")
        yield from _overlaps(one.resources, resources)
        for position, name in enumerate(one.resources):
            if problem := _bad_resource(name):
                yield invalid_value(resources.index(position), name, problem)
        if not one.providers:
            yield required(providers, f"at least one {providers} is required")
        for position, provider in enumerate(one.providers):
            yield from _provider(provider, providers.index(position), names)


def _group_resource(name: str) -> tuple[str, str]:
    """Return (group, resource) of a name; the group of "secrets" and of "*." is ""."""
    resource, _, group = name.partition(".")
    return group, resource


def _overlaps(names: Sequence[str], path: Path) -> Iterator[Cause]:
    parsed = [_group_resource(name) for name in names]
    pairs = [(one, other) for i, one in enumerate(parsed) for j, other in enumerate(parsed) if i != j]
    if any(one == other for one, other in pairs):
        yield invalid_value(path, list(names), DUPLICATE)
    if _overlap(pairs):
        yield invalid_value(path, list(names), OVERLAP)


def _overlap(pairs: Collection[tuple[tuple[str, str], tuple[str, str]]]) -> bool:
    duplicate_seen = False
    for one, other in pairs:
        if one == other and not duplicate_seen:  # the first such pair is reported as a duplicate alone
            duplicate_seen = True
            continue
        if one == ("*", "*") or (one[0] == other[0] and "*" in (one[1], other[1])):
            return True
    return False


def _bad_resource(name: str) -> str:
    """Return the problem of a resource's name, or ""."""
    group, resource = _group_resource(name)
    if name.lower() != name:
        return CAPITALS
    if name == "*":
        return STAR
    if name in ("apiserveripinfo", "serviceipallocations", "servicenodeportallocations"):
        return NOT_SERVED
    if group == "events.k8s.io":
        return EVENTS
    if group == "extensions":
        return EXTENSIONS
    return ACROSS_GROUPS if group == "*" and resource != "*" else ""


def _provider(provider: ProviderConfiguration, path: Path, names: set[str]) -> Iterator[Cause]:
    given = [
        each
        for each in (provider.kms, provider.aesgcm, provider.aescbc, provider.secretbox, provider.identity)
        if each is not None
    ]
    if len(given) != 1:
        yield invalid_value(path, _shown(provider), SEVERAL if given else NO_PROVIDER)
    if provider.kms is not None:
        yield from _kms(provider.kms, path.child("kms"), names)
        names.add(provider.kms.name)
    elif provider.aesgcm is not None:
        yield from _keys(provider.aesgcm.keys, path.child("aesgcm", "keys"), AES_SIZES)
    elif provider.aescbc is not None:
        yield from _keys(provider.aescbc.keys, path.child("aescbc", "keys"), AES_SIZES)
    elif provider.secretbox is not None:
        yield from _keys(provider.secretbox.keys, path.child("secretbox", "keys"), SECRETBOX_SIZES)


def _shown(provider: ProviderConfiguration) -> Any:
    """Return a wrong element for its message: the names of its providers. Keys are not shown."""
    return [
        name for name in ("kms", "aesgcm", "aescbc", "secretbox", "identity") if getattr(provider, name) is not None
    ]


def _keys(keys: Sequence[EncryptionKey], path: Path, sizes: Collection[int]) -> Iterator[Cause]:
    if not keys:
        yield required(path, "at least one keys is required")
    for index, key in enumerate(keys):
        at = path.index(index)
        if not key.name:
            yield required(at.child("name"), "name is a mandatory field for a key")
        if not key.secret:
            yield required(at.child("secret"), "secret is a mandatory field for a key")
            continue
        try:
            size = len(secret_of(key))
        except (binascii.Error, ValueError):
            yield invalid_value(at.child("secret"), REDACTED, "secrets must be base64 encoded")
            continue
        if size not in sizes:
            expected = " ".join(map(str, sizes))
            detail = f"secret is not of the expected length, got {size}, expected one of [{expected}]"
            yield invalid_value(at.child("secret"), REDACTED, detail)


def _kms(kms: KMSConfiguration, path: Path, names: set[str]) -> Iterator[Cause]:
    version = version_of(kms)
    if not kms.name:
        yield required(path.child("name"), "name is a mandatory field for a provider")
    if version != V1:
        if ":" in kms.name:
            yield invalid_value(
                path.child("name"), kms.name, f"invalid KMS provider name {kms.name}, must not contain ':'"
            )
        if kms.name in names:
            detail = f"duplicate KMS provider name {kms.name}, names must be unique"
            yield invalid_value(path.child("name"), kms.name, detail)
    if kms.timeout is not None and kms.timeout <= 0:
        yield invalid_value(path.child("timeout"), durations.text_of(kms.timeout), "timeout should be a positive value")
    yield from _endpoint(kms.endpoint, path.child("endpoint"))
    if version != V1 and kms.cachesize is not None:
        yield invalid_value(path.child("cachesize"), kms.cachesize, "cachesize is not supported in v2")
    if version == V1 and kms.cachesize == 0:
        yield invalid_value(path.child("cachesize"), 0, "cachesize should be a positive value, or negative to disable")
    if version not in (V1, V2):
        detail = "unsupported apiVersion apiVersion for KMS provider, only v1 and v2 are supported"
        yield invalid_value(path.child("apiVersion"), version, detail)


def _endpoint(endpoint: str, path: Path) -> Iterator[Cause]:
    if not endpoint:
        yield invalid_value(path, "", "endpoint is a mandatory field for a kms")
        return
    try:
        scheme = urlsplit(endpoint).scheme
    except ValueError as error:
        yield invalid_value(path, endpoint, f"invalid endpoint for kms provider, error: {error}")
        return
    if scheme != "unix":
        detail = f"unsupported scheme {go_quote(scheme)} for KMS provider, only unix is supported"
        yield invalid_value(path, endpoint, detail)


def _check_masking(configuration: EncryptionConfiguration, *, kms_v1: bool) -> None:
    """Raise ConfigFileError for a resource that an earlier entry covers by a wildcard, and for KMS v1 if it is off."""
    seen: set[str] = set()
    for one in configuration.resources:
        for provider in one.providers:
            if provider.kms is not None and version_of(provider.kms) == V1 and not kms_v1:
                raise ConfigFileError(f"error while building transformers: {NO_KMS_V1}")
        for name in one.resources:
            group = _group_resource(name)[0]
            for earlier in (f"*.{group}", EVERYTHING):
                if earlier in seen:
                    raise ConfigFileError(
                        f"error while building transformers: resource {go_quote(name)} is masked by earlier rule "
                        f"{go_quote(earlier)}"
                    )
            seen.add(name)
