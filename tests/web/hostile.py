"""Text that attacks the page it is shown on, and what must be true of every page that shows it."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser

SCRIPTS = (
    "<script>window.pwned = 1</script>",
    "</script><script>window.pwned = 2</script>",
    "<!--<script>",
    "]]><img src=x onerror='window.pwned = 3'>",
    '" onmouseover="window.pwned = 4" autofocus onfocus=\'window.pwned = 5\' x="',
    "'><svg/onload=window.pwned=6>",
    "javascript:window.pwned=7",
    "</textarea></title></style></pre><iframe srcdoc='<script>parent.pwned=8</script>'>",
    "{{ 7 * 7 }}{% include 'x' %}${window.pwned=9}",
)
"""Each would run, or break out, in one of the places where text stands: elements, attributes, scripts, addresses."""
HIDDEN = "\u202e\u2066\u200b\u200e\u2028\u2029\ufeff\U000e0041\x00\x07\x1b[31m\x85"
"""Characters that cannot be seen, or that turn what is read."""
HOSTILE = " ".join(SCRIPTS) + HIDDEN
RAW = re.compile(
    "[\u200b\u200e\u200f\u202a-\u202e\u2028\u2029\u2066-\u2069\ufeff\U000e0000-\U000e007f\x00-\x08\x0b-\x1f\x7f-\x9f]"
)
_ADDRESSES = {"href", "src", "action", "formaction", "xlink:href", "data", "poster", "srcset"}


class _Reader(HTMLParser):
    """Reads a page as a browser does, and collects what should not be there."""

    def __init__(self, policy: str) -> None:
        super().__init__(convert_charrefs=True)
        self._policy = policy
        self.faults: list[str] = []
        self._script: list[str] | None = None
        self._is_data = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag in ("iframe", "object", "embed", "base", "applet", "frame"):
            self.faults.append(f"<{tag}>")
        if tag == "script":
            self._script, self._is_data = [], given.get("type") == "application/json"
        for name, value in given.items():
            if name.startswith("on") or name in ("srcdoc", "style"):
                self.faults.append(f"<{tag} {name}={value!r}>")
            if name in ("title", "aria-label", "alt", "placeholder") and (found := RAW.search(value)):
                self.faults.append(f"{found[0]!r} in <{tag} {name}={value[:200]!r}>")
            if name in _ADDRESSES and not re.match(r"/(?!/)|#|data:image/svg", value):
                self.faults.append(f"<{tag} {name}={value!r}>")

    def handle_data(self, data: str) -> None:
        if self._script is not None:
            self._script.append(data)
        elif found := RAW.search(data):
            self.faults.append(f"{found[0]!r} in {data[:200]!r}")

    def handle_endtag(self, tag: str) -> None:
        if tag == "script" and self._script is not None:
            self._check_script("".join(self._script))
            self._script = None

    def _check_script(self, text: str) -> None:
        if not text.strip():
            return
        if not self._is_data:  # only what the policy names runs
            if b64encode(sha256(text.encode()).digest()).decode() not in self._policy:
                self.faults.append(f"a script: {text[:200]!r}")
            return
        try:
            json.loads(text)
        except ValueError as error:
            self.faults.append(f"data that is not JSON: {error}")
        if re.search("</|<!--|[\u2028\u2029]", text):
            self.faults.append("data that could end its element")


def faults(text: str, policy: str = "") -> list[str]:
    """What a page has that text of others must have brought there.

    Args:
        text: the page.
        policy: its Content-Security-Policy.
    """
    reader = _Reader(policy)
    reader.feed(text)
    reader.close()
    return reader.faults
