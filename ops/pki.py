"""The server's own certificate authority, its certificates and the administrator's kubeconfig, all in DATA_DIR.

    pki/ca.{crt,key}          made once, valid for ten years; signs the others
    pki/apiserver.{crt,key}   serving certificate; renewed when it expires soon or lacks a name from the settings
    pki/admin.{crt,key}       client certificate of kubernetes-admin, group system:masters
    pki/apiserver-kubelet-client.{crt,key}   this server's client certificate for kubelets, group system:masters
    pki/front-proxy-ca.{crt,key}        a second authority, for proxies that name users in header fields
    pki/front-proxy-client.{crt,key}    this server's client certificate of it, for extension API servers
    pki/sa.key                signs service account tokens (service_account_keys.py)
    admin.kubeconfig          the administrator's, with everything embedded

Keys are EC P-256. Files are written whole (to a temporary name, then renamed), keys with mode 0600. A lock keeps two
servers that share a directory from making two authorities.
"""

from __future__ import annotations

import base64
import ipaddress
import os
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kubechronicle.ops.data_dir import locked, make_data_dir
from kubechronicle.ops.errors import OperatorError

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

CA_LIFETIME = timedelta(days=3650)  # kubeadm's
LIFETIME = timedelta(days=365)  # kubeadm's
RENEW_BEFORE = timedelta(days=30)  # enough for a server that checks daily, or is restarted monthly
CLOCK_SKEW = timedelta(minutes=5)  # of clients; kubeadm's

ADMIN_USER = "kubernetes-admin"
ADMIN_GROUPS = ("system:masters",)
KUBELET_CLIENT = "apiserver-kubelet-client"
KUBELET_CLIENT_USER = "kube-apiserver-kubelet-client"
"""kubeadm's names of the certificate and the user that kubelets see."""
FRONT_PROXY = "front-proxy-client"
"""The name of this server when it names users to extension API servers; kubeadm's."""
FRONT_PROXY_AUTHORITY = "kubechronicle-front-proxy"
SERVICE_NAMES = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A certificate and its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def pem(self) -> tuple[bytes, bytes]:
        key = self.key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
        return self.certificate.public_bytes(Encoding.PEM), key


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The names and addresses of a serving certificate."""

    dns: tuple[str, ...]
    addresses: tuple[IPAddress, ...]

    def general_names(self) -> list[x509.GeneralName]:
        return [*map(x509.DNSName, self.dns), *map(x509.IPAddress, self.addresses)]


def serving_names(*, addresses: Iterable[IPAddress], external_hostname: str | None = None) -> Names:
    """Return the names of a server: its addresses, the loopback's, the machine's and the Service's."""
    hostname = socket.gethostname().lower()
    dns = dict.fromkeys(["localhost", *SERVICE_NAMES, *([external_hostname] if external_hostname else [])])
    if hostname.isascii() and 0 < len(hostname) <= 253:
        dns.setdefault(hostname)
    loopback = (ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("::1"))
    usable = [address for address in addresses if not address.is_unspecified]
    return Names(dns=tuple(dns), addresses=tuple(dict.fromkeys([*loopback, *usable])))


class Pki:
    """The authority in DATA_DIR/pki. Every method can be repeated: valid files stay unchanged."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.directory = data_dir / "pki"
        self.ca_file = self.directory / "ca.crt"
        self.serving_files = (self.directory / "apiserver.crt", self.directory / "apiserver.key")
        self.kubelet_client_files = (self.directory / f"{KUBELET_CLIENT}.crt", self.directory / f"{KUBELET_CLIENT}.key")
        self.front_proxy_ca_file = self.directory / "front-proxy-ca.crt"
        self.front_proxy_files = (self.directory / "front-proxy-client.crt", self.directory / "front-proxy-client.key")
        self.kubeconfig_file = data_dir / "admin.kubeconfig"

    def ensure(self, names: Names) -> list[str]:
        """Make pairs that are missing, expire or do not fit. Return the names of these. Raise OperatorError."""
        made: list[str] = []
        try:
            make_data_dir(self.data_dir)
            self.directory.mkdir(exist_ok=True, mode=0o755)
            with locked(self.directory / ".lock", wait=True):
                authority = self._authority(made)
                serving = self._load("apiserver")
                if serving is None or not _issued_by(serving, authority) or not _covers(serving.certificate, names):
                    self._store("apiserver", _issue_serving(authority, names), made)
                admin = self._load("admin")
                if admin is None or not _issued_by(admin, authority):
                    self._store("admin", issue_client_certificate(authority, ADMIN_USER, ADMIN_GROUPS), made)
                kubelets = self._load(KUBELET_CLIENT)
                if kubelets is None or not _issued_by(kubelets, authority):
                    pair = issue_client_certificate(authority, KUBELET_CLIENT_USER, ADMIN_GROUPS)
                    self._store(KUBELET_CLIENT, pair, made)
                proxies = self._authority(made, "front-proxy-ca", FRONT_PROXY_AUTHORITY)
                proxy = self._load(FRONT_PROXY)
                if proxy is None or not _issued_by(proxy, proxies):
                    self._store(FRONT_PROXY, issue_client_certificate(proxies, FRONT_PROXY), made)
        except OSError as error:
            raise OperatorError(f"cannot keep certificates in {self.directory}: {error}") from error
        return made

    def authority(self) -> Pair:
        """Return the authority. Raise OperatorError if there is none."""
        authority = self._load("ca")
        if authority is None:
            raise OperatorError(f"there is no authority in {self.directory}; start `kubechronicle serve` there first")
        return authority

    def write_admin_kubeconfig(self, *, server: str, serving_ca: Path | None = None) -> Path:
        """Write the kubeconfig and return its path.

        ``server``: the URL
        ``serving_ca``: the authorities of the serving certificate, by default ours
        """
        admin = self._load("admin")
        if admin is None:
            raise OperatorError(f"there is no admin certificate in {self.directory}")
        text = kubeconfig(server=server, ca=(serving_ca or self.ca_file).read_bytes(), user=ADMIN_USER, pair=admin)
        if not self.kubeconfig_file.exists() or self.kubeconfig_file.read_text() != text:
            write_whole(self.kubeconfig_file, text.encode(), mode=0o600)
        return self.kubeconfig_file

    def _authority(self, made: list[str], name: str = "ca", common_name: str = "kubechronicle") -> Pair:
        authority = self._load(name)
        if authority is None:
            authority = _make_authority(common_name)
            self._store(name, authority, made)
        end = authority.certificate.not_valid_after_utc
        if end < datetime.now(UTC) + RENEW_BEFORE:
            raise OperatorError(
                f"the authority {self.directory / name}.crt expires on {end:%Y-%m-%d}; "
                "move the pki folder away, and the server makes a new one; then issue new client certificates"
            )
        return authority

    def _load(self, name: str) -> Pair | None:
        """Return the pair, or None if there is no certificate. Raise OperatorError for unusable files.

        A key without a certificate remains when a server is killed while it stores the pair.
        """
        crt, key = self.directory / f"{name}.crt", self.directory / f"{name}.key"
        if not crt.exists():
            return None
        if not key.exists():
            raise OperatorError(f"{key} is missing; put it back, or remove {crt}, and the server makes both")
        try:
            certificate = x509.load_pem_x509_certificate(crt.read_bytes())
            private = load_pem_private_key(key.read_bytes(), password=None)
        except ValueError:
            raise OperatorError(f"{crt} or {key} is damaged; remove both, and the server makes new ones") from None
        if not isinstance(private, ec.EllipticCurvePrivateKey) or not _same_key(certificate, private):
            raise OperatorError(f"{key} does not belong to {crt}; remove both, and the server makes new ones")
        return Pair(certificate=certificate, key=private)

    def _store(self, name: str, pair: Pair, made: list[str]) -> None:
        """Write the pair. The old certificate is removed first, so that files that exist always match."""
        certificate, key = pair.pem()
        (self.directory / f"{name}.crt").unlink(missing_ok=True)
        write_whole(self.directory / f"{name}.key", key, mode=0o600)
        write_whole(self.directory / f"{name}.crt", certificate, mode=0o644)
        made.append(name)


def issue_client_certificate(
    authority: Pair, user: str, groups: Sequence[str] = (), *, lifetime: timedelta = LIFETIME
) -> Pair:
    """Return a certificate with the user as common name and the groups as organizations. Raise OperatorError."""
    attributes = [*((NameOID.ORGANIZATION_NAME, group) for group in groups), (NameOID.COMMON_NAME, user)]
    try:
        subject = x509.Name([x509.NameAttribute(oid, value) for oid, value in attributes])
    except ValueError as error:
        raise OperatorError(f"no certificate can hold user {user!r} with groups {list(groups)}: {error}") from None
    key, builder = _begin(subject, authority.certificate.subject, lifetime)
    builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
    return _finish(key, builder, authority)


def kubeconfig(*, server: str, ca: bytes, user: str, pair: Pair) -> str:
    """Return a kubeconfig with one cluster, one user and one context, everything embedded."""
    certificate, key = pair.pem()

    def data(content: bytes) -> str:
        return base64.b64encode(content).decode()

    credentials = {"client-certificate-data": data(certificate), "client-key-data": data(key)}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "kubechronicle", "cluster": {"server": server, "certificate-authority-data": data(ca)}},
        ],
        "users": [{"name": user, "user": credentials}],
        "contexts": [{"name": "kubechronicle", "context": {"cluster": "kubechronicle", "user": user}}],
        "current-context": "kubechronicle",
    }
    return yaml.safe_dump(document, sort_keys=False)


def write_whole(path: Path, content: bytes, *, mode: int) -> None:
    """Replace the file atomically: a reader sees the old or the new one, also after a crash."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(file.fileno(), mode)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)


def _begin(
    subject: x509.Name, issuer: x509.Name, lifetime: timedelta
) -> tuple[ec.EllipticCurvePrivateKey, x509.CertificateBuilder]:
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + lifetime)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return key, builder


def _finish(key: ec.EllipticCurvePrivateKey, builder: x509.CertificateBuilder, authority: Pair) -> Pair:
    """Sign the certificate as an end entity of the authority."""
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    builder = (
        builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(identifier, critical=False)
    )
    return Pair(certificate=builder.sign(authority.key, hashes.SHA256()), key=key)


def _make_authority(common_name: str) -> Pair:
    # Clients that cache by name distinguish two authorities of one name by the serial number.
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    key, builder = _begin(name, name, CA_LIFETIME)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_key_usage(signs_certificates=True), critical=True)
    return Pair(certificate=builder.sign(key, hashes.SHA256()), key=key)


def _issue_serving(authority: Pair, names: Names) -> Pair:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kube-apiserver")])
    key, builder = _begin(subject, authority.certificate.subject, LIFETIME)
    builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    builder = builder.add_extension(x509.SubjectAlternativeName(names.general_names()), critical=False)
    return _finish(key, builder, authority)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _issued_by(pair: Pair, authority: Pair) -> bool:
    """Check that the authority signed the certificate, and that it does not expire soon."""
    if pair.certificate.not_valid_after_utc < datetime.now(UTC) + RENEW_BEFORE:
        return False
    try:
        pair.certificate.verify_directly_issued_by(authority.certificate)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _covers(certificate: x509.Certificate, names: Names) -> bool:
    try:
        present = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return False
    return set(names.general_names()) <= set(present)


def _same_key(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> bool:
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return certificate.public_key().public_bytes(*form) == key.public_key().public_bytes(*form)
