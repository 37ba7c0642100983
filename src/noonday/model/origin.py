"""Origins: the addresses under which browsers reach a server."""

from urllib.parse import urlsplit


def host_of(origin: str) -> str:
    """Return the host of an origin, with its port if it has one: `jobs.example.com` for `https://jobs.example.com`.

    Raises ValueError.
    """
    parts = urlsplit(origin)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/") or parts.query:
        raise ValueError(f"{origin!r} is not an origin such as https://jobs.example.com")
    return parts.netloc.lower()
