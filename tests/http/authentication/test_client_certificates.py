"""Client certificates: their users, and their verification with changing authorities and clock."""

from __future__ import annotations

import hashlib
import ipaddress
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from certificates import CA, CLIENT, CN, O
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, ObjectIdentifier
from prometheus_client import CollectorRegistry
from stalls.longest_pass import on_this_machine

from kubechronicle.http.authentication import authorities as authorities_module
from kubechronicle.http.authentication import credentials
from kubechronicle.http.authentication.authorities import Authorities, Bundle, chain_to
from kubechronicle.http.authentication.chain import AuthenticationChain
from kubechronicle.http.authentication.credentials import CACHE_SIZE, UID, ClientCertificates
from kubechronicle.http.authentication.user import CREDENTIAL_ID, CredentialRejected, User
from kubechronicle.http.messages import Request

OURS, OTHER = CA("ca"), CA("ca")  # with equal names, so that only the keys differ
SERVER, ANY = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE
JANE = (CN, "jane")


def request_with(der: bytes | None, *intermediates: bytes) -> Request:
    request = Request.of("GET", "/api", peer_certificate=der)
    request.peer_intermediates = intermediates
    return request


def certificates(clock: Callable[[], float] = time.time, trusted: Callable[[], Bundle] = OURS.bundle) -> Any:
    return ClientCertificates(trusted, clock=clock)


def credential(der: bytes) -> dict[str, tuple[str, ...]]:
    return {CREDENTIAL_ID: (f"X509SHA256={hashlib.sha256(der).hexdigest()}",)}


def test_the_common_name_is_the_user_and_organizations_are_groups() -> None:
    der = OURS.issue((O, "system:masters"), (O, "ops"), JANE, (UID, "u-1"))
    authenticator = certificates()
    for _ in range(2):  # the second time from the cache
        assert authenticator.authenticate(request_with(der)) == User(
            name="jane", uid="u-1", groups=("system:masters", "ops"), extra=credential(der)
        )


def test_a_gate_leaves_out_the_uid() -> None:
    authenticator = ClientCertificates(OURS.bundle, reads_uid=False)
    assert authenticator.authenticate(request_with(OURS.issue(JANE, (UID, "u-1")))).uid == ""  # type: ignore[union-attr]


def test_the_last_of_several_common_names_counts() -> None:
    assert certificates().authenticate(request_with(OURS.issue((CN, "joe"), JANE))).name == "jane"


def test_no_certificate_is_no_credential() -> None:
    assert certificates().authenticate(request_with(None)) is None


@pytest.mark.parametrize("usage", [(ANY,), (CLIENT, SERVER), None], ids=["any", "both", "does not say"])
def test_extended_key_usages(usage: Any) -> None:
    assert certificates().authenticate(request_with(OURS.issue(JANE, usage=usage))).name == "jane"


@pytest.mark.parametrize(
    "der",
    [
        OTHER.issue(JANE),
        OURS.issue(JANE, start=-2, end=-1),
        OURS.issue(JANE, start=1, end=2),
        OURS.issue(JANE, usage=[SERVER]),
        OURS.issue((O, "system:masters")),
        OURS.issue(JANE, (UID, "1"), (UID, "2")),
        OURS.issue(JANE, (UID, "1"), (UID, "1")),
        OURS.issue(JANE, extensions=[(x509.UnrecognizedExtension(ObjectIdentifier("1.2.3.4"), b"\x05\x00"), True)]),
        b"",
        b"not a certificate",
        OURS.issue(JANE)[:-40],
        OURS.issue(JANE)[:-1] + b"\x00",
    ],
    ids=[
        "another authority",
        "expired",
        "not yet valid",
        "for servers",
        "no common name",
        "two uids",
        "one uid twice",
        "critical and not understood",
        "empty",
        "garbage",
        "cut off",
        "another signature",
    ],
)
def test_wrong_certificates_are_rejected(der: bytes) -> None:
    authenticator = certificates()
    for _ in range(2):
        with pytest.raises(CredentialRejected):
            authenticator.authenticate(request_with(der))


def test_a_connection_may_outlive_its_certificate() -> None:
    now = time.time()
    authenticator = certificates(lambda: now)
    early, der = OURS.issue(JANE, start=0.5, end=2), OURS.issue(JANE)
    assert authenticator.authenticate(request_with(der)).name == "jane"
    with pytest.raises(CredentialRejected):
        authenticator.authenticate(request_with(early))
    now += 0.9 * 86400
    assert authenticator.authenticate(request_with(early)).name == "jane"
    now += 0.2 * 86400
    with pytest.raises(CredentialRejected):
        authenticator.authenticate(request_with(der))


def test_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert CACHE_SIZE >= 1000
    monkeypatch.setattr(credentials, "CACHE_SIZE", 2)
    authenticator = certificates()
    for number in range(5):
        authenticator.authenticate(request_with(OURS.client(f"user{number}")))
    assert len(authenticator._certificates._known) == 2


def test_intermediates_are_not_cached() -> None:
    authenticator = certificates()
    der, one, two = OURS.client("jane"), OTHER.der, OURS.der
    sent = [(one,), (two,), (one, two), (two, one), (one,) * 50, (two,) * 50]
    for along in sent:
        assert authenticator.authenticate(request_with(der, *along)).name == "jane"
    known = authenticator._certificates._known
    assert len(known) == len(sent)
    assert sum(map(len, known)) < 1000


# -- chains ---------------------------------------------------------------------------------------------------------


def has_chain(der: bytes, *others: CA, roots: CA = OURS) -> bool:
    leaf = x509.load_der_x509_certificate(der)
    chain = chain_to(roots.bundle().certificates, leaf, [other.certificate for other in others], time.time())
    return chain is not None


def test_chains_use_intermediates_of_the_client() -> None:
    middle = CA("middle", parent=OURS)
    low = CA("low", parent=middle)
    der = low.client("jane")
    assert has_chain(der, low, middle)
    assert has_chain(der, middle, low, OTHER)
    assert not has_chain(der, low)
    assert not has_chain(der, middle)
    assert has_chain(der, low, roots=middle)  # an intermediate authority may be the trusted one
    assert has_chain(der, roots=low)
    assert not has_chain(der, low, middle, roots=OTHER)


def test_an_incomplete_chain_does_not_poison_the_cache() -> None:
    middle = CA("middle", parent=OURS)
    authenticator = certificates()
    der = middle.client("jane")
    with pytest.raises(CredentialRejected):
        authenticator.authenticate(request_with(der))
    assert authenticator.authenticate(request_with(der, middle.der)).name == "jane"


@pytest.mark.parametrize(
    ("options", "good"),
    [
        ({}, True),
        ({"days": -0.5}, False),
        ({"length": 0}, True),
        ({"extensions": [(x509.KeyUsage(True, *[False] * 4, True, *[False] * 3), True)]}, True),
        ({"extensions": [(x509.KeyUsage(True, *[False] * 8), True)]}, False),
        ({"extensions": [(x509.ExtendedKeyUsage([SERVER]), False)]}, False),
        ({"extensions": [(x509.ExtendedKeyUsage([CLIENT]), False)]}, True),
        ({"extensions": [(x509.NameConstraints([x509.DNSName("example.com")], None), True)]}, True),
        ({"extensions": [(x509.NameConstraints([x509.DirectoryName(x509.Name([]))], None), True)]}, False),
    ],
    ids=["plain", "expired", "short", "signs", "does not sign", "for servers", "for clients", "names", "subjects"],
)
def test_intermediate_authorities(options: Any, good: bool) -> None:
    middle = CA("middle", parent=OURS, **options)
    assert has_chain(middle.client("jane"), middle) is good


def test_the_length_of_chains() -> None:
    short = CA("short", parent=OURS, length=0)
    low = CA("low", parent=short)
    assert not has_chain(low.client("jane"), low, short)
    line = [OURS]
    for number in range(9):
        line.append(CA(f"ca{number}", parent=line[-1]))
    assert has_chain(line[6].client("jane"), *line[1:7])
    assert not has_chain(line[7].client("jane"), *line[1:8])


def test_a_certificate_that_is_no_authority_issues_nothing() -> None:
    impostor = CA("impostor")
    impostor.certificate = OURS.sign([(CN, "impostor")], impostor.key)
    assert not has_chain(impostor.client("jane"), impostor)
    impostor.certificate = OURS.sign([(CN, "impostor")], impostor.key, authority=None, usage=None)
    assert not has_chain(impostor.client("jane"), impostor)


def test_name_constraints() -> None:
    middle = CA("middle", parent=OURS, extensions=[(x509.NameConstraints([x509.DNSName("a.example")], None), True)])
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("10.0.0.1"))])
    assert not has_chain(middle.issue(JANE, extensions=[(address, False)]), middle)


@pytest.mark.parametrize("key", ["short", "long"])
def test_authorities_that_sign_each_other_are_searched_within_bounds(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anybody may send a hundred certificates of one name and key: each of them signs each other one."""
    many = CA("many")
    if key == "long":
        many.key = rsa.generate_private_key(65537, 4096)
    leaf, middle = many.sign([JANE], CA("any").key), many.sign([(CN, "many")], many.key, authority=True, usage=None)
    others = [middle, *(many.sign([(CN, "many")], many.key, authority=True, usage=None) for _ in range(99))]
    best = math.inf
    for _ in range(3):
        started = time.process_time()
        assert chain_to(OURS.bundle().certificates, leaf, others, time.time()) is None
        best = min(best, time.process_time() - started)
    assert best < on_this_machine(0.05)
    assert chain_to([middle], leaf, others, time.time()) == [leaf, middle]
    monkeypatch.setattr(authorities_module, "MAX_RSA_BITS", 4095)
    assert (chain_to([middle], leaf, others, time.time()) is None) == (key == "long")


@pytest.mark.parametrize("key", [rsa.generate_private_key(65537, 2048), ed25519.Ed25519PrivateKey.generate()])
def test_kinds_of_keys(key: Any) -> None:
    der = OURS.sign([JANE], key).public_bytes(Encoding.DER)
    assert has_chain(der)


def test_an_authority_may_be_the_client_certificate() -> None:
    assert has_chain(OURS.der)
    assert not has_chain(OTHER.der)


# -- the files ------------------------------------------------------------------------------------------------------


def replace(file: Path, content: bytes) -> None:
    """Replace the file atomically, as tools for rotation do."""
    file.with_suffix(".new").write_bytes(content)
    os.replace(file.with_suffix(".new"), file)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorities_module, "LOOK_INTERVAL", 0.0)


def test_authorities_are_reloaded_when_their_file_changes(tmp_path: Path, at_once: None) -> None:
    first, second = tmp_path / "first.crt", tmp_path / "second.crt"
    first.write_bytes(OURS.pem)
    second.write_bytes(CA("third").pem)
    authorities = Authorities([first, second])
    authenticator = ClientCertificates(authorities.current)
    ours, other = request_with(OURS.client("jane")), request_with(OTHER.client("joe"))
    assert authenticator.authenticate(ours)
    assert authorities.current() is authorities.current()
    replace(first, OTHER.pem + OURS.pem)
    assert authenticator.authenticate(other)
    assert authenticator.authenticate(ours)
    replace(first, OTHER.pem)
    assert authenticator.authenticate(other)
    with pytest.raises(CredentialRejected):
        authenticator.authenticate(ours)


@pytest.mark.parametrize("content", [b"", b"not PEM", OURS.pem[:200], None])
def test_an_unusable_file_keeps_the_former_authorities(
    tmp_path: Path, at_once: None, content: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "ca.crt"
    file.write_bytes(OURS.pem)
    authorities = Authorities([file])
    before = authorities.current()
    if content is None:
        file.unlink()
    else:
        replace(file, content)
    assert authorities.current() is before
    assert authorities.current() is before
    assert len([record for record in caplog.records if "stay" in record.message]) == 1
    replace(file, OTHER.pem)
    assert authorities.current().certificates == (OTHER.certificate,)
    with pytest.raises((OSError, ValueError)):
        Authorities([tmp_path / "none"])


def test_the_metric_of_remaining_lifetimes() -> None:
    chain = AuthenticationChain([certificates()])
    for days in (0.01, 0.6, 100):
        chain.authenticate(request_with(OURS.issue(JANE, end=days)))
    registry = CollectorRegistry()
    registry.register(chain.metrics)
    name = "apiserver_client_certificate_expiration_seconds"
    ends = ("0.0", "1800.0", "86400.0", "+Inf")
    buckets = {end: registry.get_sample_value(f"{name}_bucket", {"le": end}) for end in ends}
    assert buckets == {"0.0": 0, "1800.0": 1, "86400.0": 2, "+Inf": 3}
