"""Page of the outbox: plain HTML without scripts."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from urllib.parse import urlencode

from noonday.doubles.outbox import AcceptedMessage

PAGE_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
"""The page loads only its own style, and executes nothing: messages contain what anybody has sent."""
PAGE_STYLE = """\
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
nav a { margin-right: 1rem; }
article { border: 1px solid #8886; border-radius: 8px; margin: 1rem 0; padding: .75rem 1rem; }
h2 { font-size: 1.05rem; margin: 0; }
p.facts { color: #777; margin: 0 0 .5rem; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: .5rem 0 0; }
ul { margin: .5rem 0 0; padding-left: 1.2rem; }
"""
SHOWN_CHARS = 4_000
"""Characters of a text or of HTML that the page shows."""


def outbox_page(messages: Sequence[AcceptedMessage], query: Mapping[str, str], *, has_more: bool) -> str:
    """Return the page for these messages, newest first. `query`: the page's own parameters, for the link to older ones."""
    shown = "".join(map(_article, messages)) or "<p>No messages yet.</p>"
    links = "".join(
        f'<a href="{escape("/?" + urlencode({"channel": channel}) if channel else "/")}">{name}</a>'
        for name, channel in (("All", ""), ("Push", "PUSH"), ("SMS", "SMS"), ("Email", "EMAIL"))
    )
    older = ""
    if has_more:
        target = "/?" + urlencode({**query, "before": messages[-1].id})
        older = f'<nav><a href="{escape(target)}">Older messages</a></nav>'
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Outbox</title>'
        '<meta name="viewport" content="width=device-width"><link rel="stylesheet" href="/page.css"></head>'
        f"<body><h1>Outbox</h1><p>Messages that the doubles have accepted. None of them has left this machine.</p>"
        f'<nav>{links}<a href="/outbox">JSON</a></nav><main>{shown}</main>{older}</body></html>'
    )


def _article(message: AcceptedMessage) -> str:
    at = datetime.fromtimestamp(message.at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    facts = f"{message.channel} by {message.provider} · from {message.sender} · {at} · {message.provider_id}"
    parts = [
        f"<h2>{escape(message.title or message.channel.title())} to {escape(message.to)}</h2>",
        f'<p class="facts">{escape(facts)}</p>',
        _block(message.text),
        "" if message.html is None else f"<details><summary>HTML</summary>{_block(message.html)}</details>",
    ]
    if message.receipts:
        rows = (f"<li>{escape(each.state)}: {escape(str(each.status or each.error))}</li>" for each in message.receipts)
        parts.append(f"<details><summary>Receipts</summary><ul>{''.join(rows)}</ul></details>")
    return f'<article id="m{message.id}">{"".join(parts)}</article>'


def _block(text: str | None) -> str:
    if not text:
        return ""
    cut = text[:SHOWN_CHARS] + ("…" if len(text) > SHOWN_CHARS else "")
    return f"<pre>{escape(cut)}</pre>"
