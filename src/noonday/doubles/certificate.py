"""Certificate of the doubles, made at each start."""

import ssl
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from tempfile import TemporaryDirectory

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

# The key ends with the process, so the certificate needs no clock.
_SINCE, _UNTIL = datetime(2020, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)


class ThrowAwayCertificate:
    """A certificate for the loopback that is its own authority. Its key is never kept in a file."""

    def __init__(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _signed(key)
        self.authority = certificate.public_bytes(serialization.Encoding.PEM).decode()
        """The certificate in PEM, for clients to trust."""
        self._key = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    def server_context(self, *protocols: str) -> ssl.SSLContext:
        """Return a context for servers that offers these application protocols."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # The library reads certificates from files only.
        with TemporaryDirectory(prefix="noonday-") as folder:
            file = Path(folder) / "double.pem"
            file.touch(0o600)
            file.write_bytes(self.authority.encode() + self._key)
            context.load_cert_chain(file)
        if protocols:
            context.set_alpn_protocols(list(protocols))
        return context


def _signed(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Noonday double")])
    names = [x509.DNSName("localhost"), *(x509.IPAddress(ip_address(each)) for each in ("127.0.0.1", "::1"))]
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_SINCE)
        .not_valid_after(_UNTIL)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
