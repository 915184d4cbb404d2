"""Client certificates: whose they are, and which are believed, as the authorities and the clock stand."""

from __future__ import annotations

import hashlib
import ipaddress
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

from kubechronicle.http.authentication import authorities as authorities_module
from kubechronicle.http.authentication import x509 as module
from kubechronicle.http.authentication.authorities import Authorities, Bundle, chain_to
from kubechronicle.http.authentication.chain import AuthenticationChain
from kubechronicle.http.authentication.user import CREDENTIAL_ID, Rejected, User
from kubechronicle.http.authentication.x509 import CACHE_SIZE, UID, ClientCertificates
from kubechronicle.http.messages import Request

OURS, OTHER = CA("ca"), CA("ca")  # of one name, so that only the key tells them apart
SERVER, ANY = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE
JANE = (CN, "jane")


def asking(der: bytes | None, *intermediates: bytes) -> Request:
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
        assert authenticator.authenticate(asking(der)) == User(
            name="jane", uid="u-1", groups=("system:masters", "ops"), extra=credential(der)
        )


def test_the_last_of_several_common_names_counts() -> None:
    assert certificates().authenticate(asking(OURS.issue((CN, "joe"), JANE))).name == "jane"


def test_no_certificate_is_no_credential() -> None:
    assert certificates().authenticate(asking(None)) is None


@pytest.mark.parametrize("usage", [(ANY,), (CLIENT, SERVER), None], ids=["any", "both", "does not say"])
def test_what_a_certificate_may_be_for(usage: Any) -> None:
    assert certificates().authenticate(asking(OURS.issue(JANE, usage=usage))).name == "jane"


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
        with pytest.raises(Rejected):
            authenticator.authenticate(asking(der))


def test_a_connection_may_outlive_its_certificate() -> None:
    now = time.time()
    authenticator = certificates(lambda: now)
    early, der = OURS.issue(JANE, start=0.5, end=2), OURS.issue(JANE)
    assert authenticator.authenticate(asking(der)).name == "jane"
    with pytest.raises(Rejected):
        authenticator.authenticate(asking(early))
    now += 0.9 * 86400
    assert authenticator.authenticate(asking(early)).name == "jane"
    now += 0.2 * 86400
    with pytest.raises(Rejected):
        authenticator.authenticate(asking(der))


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert CACHE_SIZE >= 1000
    monkeypatch.setattr(module, "CACHE_SIZE", 2)
    authenticator = certificates()
    for number in range(5):
        authenticator.authenticate(asking(OURS.client(f"user{number}")))
    assert len(authenticator._certificates._known) == 2


def test_what_comes_along_is_not_kept() -> None:
    authenticator = certificates()
    der, one, two = OURS.client("jane"), OTHER.der, OURS.der
    sent = [(one,), (two,), (one, two), (two, one), (one,) * 50, (two,) * 50]
    for along in sent:
        assert authenticator.authenticate(asking(der, *along)).name == "jane"
    known = authenticator._certificates._known
    assert len(known) == len(sent)
    assert sum(map(len, known)) < 1000


# -- chains ---------------------------------------------------------------------------------------------------------


def found(der: bytes, *others: CA, roots: CA = OURS) -> bool:
    leaf = x509.load_der_x509_certificate(der)
    chain = chain_to(roots.bundle().certificates, leaf, [other.certificate for other in others], time.time())
    return chain is not None


def test_chains_lead_over_what_the_client_sends_along() -> None:
    middle = CA("middle", parent=OURS)
    low = CA("low", parent=middle)
    der = low.client("jane")
    assert found(der, low, middle)
    assert found(der, middle, low, OTHER)
    assert not found(der, low)
    assert not found(der, middle)
    assert found(der, low, roots=middle)  # an intermediate authority may be the one believed
    assert found(der, roots=low)
    assert not found(der, low, middle, roots=OTHER)


def test_half_a_chain_does_not_spoil_the_whole_one() -> None:
    middle = CA("middle", parent=OURS)
    authenticator = certificates()
    der = middle.client("jane")
    with pytest.raises(Rejected):
        authenticator.authenticate(asking(der))
    assert authenticator.authenticate(asking(der, middle.der)).name == "jane"


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
def test_who_may_stand_between(options: Any, good: bool) -> None:
    middle = CA("middle", parent=OURS, **options)
    assert found(middle.client("jane"), middle) is good


def test_how_many_may_stand_between() -> None:
    short = CA("short", parent=OURS, length=0)
    low = CA("low", parent=short)
    assert not found(low.client("jane"), low, short)
    line = [OURS]
    for number in range(9):
        line.append(CA(f"ca{number}", parent=line[-1]))
    assert found(line[6].client("jane"), *line[1:7])
    assert not found(line[7].client("jane"), *line[1:8])


def test_a_certificate_that_is_no_authority_signs_nobody() -> None:
    impostor = CA("impostor")
    impostor.certificate = OURS.sign([(CN, "impostor")], impostor.key)
    assert not found(impostor.client("jane"), impostor)
    impostor.certificate = OURS.sign([(CN, "impostor")], impostor.key, authority=None, usage=None)
    assert not found(impostor.client("jane"), impostor)


def test_names_are_kept_within_constraints() -> None:
    middle = CA("middle", parent=OURS, extensions=[(x509.NameConstraints([x509.DNSName("a.example")], None), True)])
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("10.0.0.1"))])
    assert not found(middle.issue(JANE, extensions=[(address, False)]), middle)


def test_crossed_signatures_are_followed_within_bounds() -> None:
    """Authorities of one name that sign each other: the search ends."""
    many = [CA("many", parent=OTHER) for _ in range(12)]
    for one in many:
        one.certificate = many[0].sign([(CN, "many")], one.key, authority=True, usage=None)
    started = time.process_time()
    assert not found(many[3].client("jane"), *many)
    assert time.process_time() - started < 20  # all orders of twelve would be days


@pytest.mark.parametrize("key", [rsa.generate_private_key(65537, 2048), ed25519.Ed25519PrivateKey.generate()])
def test_kinds_of_keys(key: Any) -> None:
    der = OURS.sign([JANE], key).public_bytes(Encoding.DER)
    assert found(der)


def test_an_authority_that_is_shown_leads_to_itself() -> None:
    assert found(OURS.der)
    assert not found(OTHER.der)


# -- the files ------------------------------------------------------------------------------------------------------


def replace(file: Path, content: bytes) -> None:
    """As whoever rotates certificates does: the new file appears whole."""
    file.with_suffix(".new").write_bytes(content)
    os.replace(file.with_suffix(".new"), file)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorities_module, "LOOK_INTERVAL", 0.0)


def test_authorities_are_read_again_when_their_file_changes(tmp_path: Path, at_once: None) -> None:
    first, second = tmp_path / "first.crt", tmp_path / "second.crt"
    first.write_bytes(OURS.pem)
    second.write_bytes(CA("third").pem)
    authorities = Authorities([first, second])
    authenticator = ClientCertificates(authorities.current)
    ours, other = asking(OURS.client("jane")), asking(OTHER.client("joe"))
    assert authenticator.authenticate(ours)
    assert authorities.current() is authorities.current()
    replace(first, OTHER.pem + OURS.pem)
    assert authenticator.authenticate(other)
    assert authenticator.authenticate(ours)
    replace(first, OTHER.pem)
    assert authenticator.authenticate(other)
    with pytest.raises(Rejected):
        authenticator.authenticate(ours)


@pytest.mark.parametrize("content", [b"", b"not PEM", OURS.pem[:200], None])
def test_a_spoiled_file_leaves_the_former_authorities(
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


def test_how_long_certificates_are_still_good_is_told() -> None:
    chain = AuthenticationChain([certificates()])
    for days in (0.01, 0.6, 100):
        chain.authenticate(asking(OURS.issue(JANE, end=days)))
    registry = CollectorRegistry()
    registry.register(chain.metrics)
    name = "apiserver_client_certificate_expiration_seconds"
    ends = ("0.0", "1800.0", "86400.0", "+Inf")
    told = {end: registry.get_sample_value(f"{name}_bucket", {"le": end}) for end in ends}
    assert told == {"0.0": 0, "1800.0": 1, "86400.0": 2, "+Inf": 3}
