"""Addresses that browsers call a server by."""

from urllib.parse import urlsplit


def host_of(origin: str) -> str:
    """`jobs.example.com` of `https://jobs.example.com`, with the port if it has one. Raises ValueError."""
    parts = urlsplit(origin)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/") or parts.query:
        raise ValueError(f"{origin!r} is not an address such as https://jobs.example.com")
    return parts.netloc.lower()
