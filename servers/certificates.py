"""Certificates for tests of servers with TLS, created with the `openssl` command."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

NAMES = "subjectAltName=DNS:localhost,IP:127.0.0.1"
EC = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]


@dataclass(frozen=True)
class Certificate:
    """PEM files of a certificate, its private key and the authority that signed it."""

    certificate: Path
    key: Path
    authority: Path


class Authority:
    """A certificate authority for one test."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.certificate = folder / "authority.pem"
        self.key = folder / "authority.key"
        files = ["-keyout", str(self.key), "-out", str(self.certificate)]
        _openssl("req", "-x509", *EC, *files, "-days", "30", "-subj", "/CN=Noonday test authority")

    def issue(self, name: str) -> Certificate:
        """Create a certificate for `name` on this machine, for a server or a client."""
        certificate, key, request = (self.folder / f"{name}.{end}" for end in ("pem", "key", "csr"))
        extensions = self.folder / f"{name}.ext"
        extensions.write_text(f"{NAMES}\nextendedKeyUsage=serverAuth,clientAuth\n")
        _openssl("req", *EC, "-keyout", str(key), "-out", str(request), "-subj", f"/CN={name}")
        signer = ["-CA", str(self.certificate), "-CAkey", str(self.key), "-CAcreateserial"]
        files = ["-in", str(request), "-out", str(certificate), "-extfile", str(extensions)]
        _openssl("x509", "-req", *files, *signer, "-days", "30")
        return Certificate(certificate, key, self.certificate)


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
