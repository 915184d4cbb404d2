"""A drop-in for kube-apiserver: the command lines of kubeadm and k3s, with only the etcd flags changed."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from harness import Server, home, server_in
from programs import Kubectl

from kubechronicle.ops.development.server_process import ServerProcess, StartError

ADDRESS = "127.0.0.1"
ETCD = ("--etcd-servers", "--etcd-cafile", "--etcd-certfile", "--etcd-keyfile")
K3S_SUITES = (
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,"
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,"
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305,TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305"
)


class Pki:
    """The files of /etc/kubernetes/pki, with kubeadm's names."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._authorities: dict[str, tuple[x509.Certificate, rsa.RSAPrivateKey]] = {}
        for authority, name in (("ca", "kubernetes"), ("front-proxy-ca", "front-proxy-ca")):
            self._make(authority, name)
        self._make("apiserver", "kube-apiserver", by="ca", server=True)
        self._make("apiserver-kubelet-client", "kube-apiserver-kubelet-client", by="ca")
        self._make("front-proxy-client", "front-proxy-client", by="front-proxy-ca")
        self._make("super-admin", "kubernetes-super-admin", by="ca", organization="system:masters")
        key = rsa.generate_private_key(65537, 2048)
        (folder / "sa.key").write_bytes(_pem_of(key))
        public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        (folder / "sa.pub").write_bytes(public)

    def _make(self, file: str, name: str, *, by: str = "", organization: str = "", server: bool = False) -> None:
        """Write a certificate and its key. ``by``: the authority that signs it; "": an authority itself."""
        key, now = rsa.generate_private_key(65537, 2048), datetime.datetime.now(datetime.UTC)
        attributes = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
        if organization:
            attributes.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
        subject = x509.Name(attributes)
        issuer, signer = self._authorities[by] if by else (None, key)
        usage = ExtendedKeyUsageOID.SERVER_AUTH if server else ExtendedKeyUsageOID.CLIENT_AUTH
        alternatives: list[x509.GeneralName] = [
            x509.DNSName(f"kubernetes.default.svc{each}") for each in ("", ".cluster.local")
        ]
        alternatives += [x509.IPAddress(ipaddress.ip_address(each)) for each in (ADDRESS, "10.96.0.1")]
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer.subject if issuer is not None else subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=30))
            .add_extension(x509.BasicConstraints(ca=not by, path_length=None), critical=True)
        )
        if by:
            builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        if server:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        certificate = builder.sign(signer, hashes.SHA256())
        if not by:
            self._authorities[file] = (certificate, key)
        (self.folder / f"{file}.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        (self.folder / f"{file}.key").write_bytes(_pem_of(key))

    def kubeconfig(self, url: str) -> Path:
        """Write super-admin.conf, as kubeadm does, and return its path."""
        parts = {name: base64.b64encode((self.folder / name).read_bytes()).decode() for name in _FOR_ADMIN}
        ca, certificate, key = parts.values()
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "kubernetes", "cluster": {"server": url, "certificate-authority-data": ca}}],
            "users": [{"name": "admin", "user": {"client-certificate-data": certificate, "client-key-data": key}}],
            "contexts": [{"name": "admin", "context": {"cluster": "kubernetes", "user": "admin"}}],
            "current-context": "admin",
        }
        path = self.folder / "super-admin.conf"
        path.write_text(yaml.safe_dump(document))
        return path


_FOR_ADMIN = ("ca.crt", "super-admin.crt", "super-admin.key")


def _pem_of(key: rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return Pki(tmp_path_factory.mktemp("pki"))


def kubeadm_arguments(pki: Pki) -> list[str]:
    """Return the arguments in kubeadm's manifest, without the port, which a test chooses."""
    text = Path(__file__).with_name("kube-apiserver.yaml").read_text()
    pod = yaml.safe_load(text.replace("ADDRESS", ADDRESS).replace("PKI", str(pki.folder)))
    program, *arguments = pod["spec"]["containers"][0]["command"]
    assert program == "kube-apiserver"
    return [argument for argument in arguments if not argument.startswith("--secure-port")]


def k3s_arguments(pki: Pki) -> list[str]:
    """Return the arguments that k3s gives to its kube-apiserver."""
    folder = pki.folder
    return [
        "--advertise-address=127.0.0.1", "--allow-privileged=true", "--anonymous-auth=false",
        "--api-audiences=https://kubernetes.default.svc.cluster.local,k3s", "--authorization-mode=Node,RBAC",
        "--bind-address=127.0.0.1", f"--cert-dir={folder}/temporary-certs", f"--client-ca-file={folder}/ca.crt",
        "--enable-admission-plugins=NodeRestriction", "--enable-aggregator-routing=true",
        "--enable-bootstrap-token-auth=true", "--etcd-servers=unix:///run/kine.sock",
        f"--kubelet-certificate-authority={folder}/ca.crt",
        f"--kubelet-client-certificate={folder}/apiserver-kubelet-client.crt",
        f"--kubelet-client-key={folder}/apiserver-kubelet-client.key",
        "--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname", "--profiling=false",
        f"--proxy-client-cert-file={folder}/front-proxy-client.crt",
        f"--proxy-client-key-file={folder}/front-proxy-client.key",
        "--requestheader-allowed-names=front-proxy-client",
        f"--requestheader-client-ca-file={folder}/front-proxy-ca.crt",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-", "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-username-headers=X-Remote-User",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={folder}/sa.pub", f"--service-account-signing-key-file={folder}/sa.key",
        "--service-cluster-ip-range=10.43.0.0/16", "--service-node-port-range=30000-32767", "--storage-backend=etcd3",
        f"--tls-cert-file={folder}/apiserver.crt", f"--tls-cipher-suites={K3S_SUITES}",
        f"--tls-private-key-file={folder}/apiserver.key",
    ]  # fmt: skip


def without_etcd(arguments: Sequence[str]) -> list[str]:
    return [argument for argument in arguments if argument.partition("=")[0] not in ETCD]


@pytest.fixture(params=[kubeadm_arguments, k3s_arguments])
def dropped_in(request: pytest.FixtureRequest, pki: Pki) -> Iterator[Server]:
    with home("drop-in") as directory:
        server = server_in(directory / "data", arguments=without_etcd(request.param(pki)))
        try:
            server.start()
            server.kubeconfig = pki.kubeconfig(server.url)
            yield server
        finally:
            server.close()


def test_the_command_line_of_an_installer(dropped_in: Server, kubectl_binary: str, tmp_path: Path) -> None:
    kubectl = Kubectl(kubectl_binary, dropped_in, tmp_path)
    assert "system:masters" in kubectl("auth", "whoami", "-o", "json")
    kubectl("create", "configmap", "greeting", "--from-literal", "text=hello")
    assert kubectl("get", "configmap", "greeting", "-o", "jsonpath={.data.text}") == "hello"
    token = kubectl("create", "token", "default").strip()
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    answer = yaml.safe_load(kubectl("create", "-o", "yaml", "-f", "-", stdin=yaml.safe_dump(review)))
    assert answer["status"]["user"]["username"] == "system:serviceaccount:default:default"
    shown = kubectl("get", "configmap", "extension-apiserver-authentication", "-n", "kube-system", "-o", "yaml")
    assert "requestheader-client-ca-file" in shown


@pytest.mark.parametrize("flag", ETCD)
def test_etcd_flags_name_what_stands_in_their_place(pki: Pki, flag: str) -> None:
    arguments = [
        each for each in kubeadm_arguments(pki) if not each.startswith("--etcd-") or each.startswith(f"{flag}=")
    ]
    done = subprocess.run(
        [*ServerProcess.command(), "serve", *arguments], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"kubechronicle: {flag}: there is no etcd; ")
    assert "--database-url" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_wrong_cipher_suite_stops_the_start(pki: Pki) -> None:
    with home("drop-in") as directory:
        server = server_in(directory / "data", arguments=["--tls-cipher-suites", "TLS_RSA_WITH_RC4_128_SHA"])
        with pytest.raises(StartError, match="is broken, and OpenSSL no longer has it"):
            server.start()
