"""Paths as a model writes them: what they may be, before anything is looked up."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Sequence
from fnmatch import fnmatchcase

from orchestrator.errors import ToolError

OWN = ".orchestrator"
"""How names begin that are this library's, such as the directory of runs and edits. Never shown, never opened."""
HIDDEN = (
    ".git", ".env*", "*.env", ".netrc", "_netrc", ".ssh", ".gnupg", ".password-store", ".local/share/keyrings",
    ".aws", ".azure", ".kube", ".docker", ".config/gcloud", ".config/gh", ".terraform.d", ".vault-token",
    ".npmrc", ".yarnrc*", ".pypirc", ".gem/credentials", ".cargo/credentials*", ".m2/settings.xml",
    ".git-credentials", ".config/git/credentials", ".pgpass", ".my.cnf", ".htpasswd", ".s3cfg", ".boto",
    "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "*.pem", "*.key", "*.ppk", "*.p12", "*.pfx", "*.jks",
    "*.keystore", "*.kdbx", ".*_history",
)  # fmt: skip
"""Names that are hidden unless said otherwise: what is in them is secret, or is carried out by other programs. With `/`
it is the end of a path."""
_DEEP = 40
_LONG = 255
_OF_WINDOWS = re.compile(r'[<>:"|?*]|[. ]$|~\d|^(con|prn|aux|nul|com\d|lpt\d)(\.|$)', re.IGNORECASE)


def parts_of(path: str, hidden: Sequence[str] = HIDDEN, *, windows: bool = os.name == "nt") -> tuple[str, ...]:
    """The names that a path goes through, none for the root itself.

    Args:
        path: relative, with `/`.
        hidden: patterns of names, or of ends of paths, that are refused wherever they stand.
        windows: also refuse what Windows reads as something else.

    Raises:
        ToolError: it is absolute, has `..`, or a name that is hidden or cannot be a file's.
    """
    said = shown(path)
    if unicodedata.normalize("NFKC", path)[:1] in ("/", "\\", "~") or re.match(r"[A-Za-z]:", path):
        raise ToolError(f"{said} is not relative: paths start at the root, such as 'docs/notes.md'; '.' is the root")
    if "\\" in path:
        raise ToolError(f"{said} has a backslash: separate folders by '/'")
    found = tuple(part for part in path.split("/") if part not in ("", "."))
    if len(found) > _DEEP:
        raise ToolError(f"{said} has more than {_DEEP} folders")
    for index, part in enumerate(found):
        if part == "..":
            raise ToolError(f"{said} has '..': name the file from the root, without it")
        fault = _fault(part, windows)
        if fault:
            raise ToolError(f"{said}: {shown(part)} {fault}")
        if is_hidden(part, hidden, found[:index]):
            raise ToolError(f"{said}: {shown(part)} is hidden here, and is neither shown nor changed")
    return found


def is_hidden(name: str, hidden: Sequence[str], folders: Sequence[str] = ()) -> bool:
    """Whether a name is hidden, in whatever case it is written, and as a system may read it.

    Args:
        folders: the names that lead to it from the root.
    """
    plain = _as_read(name)
    if plain.startswith(OWN):
        return True
    for pattern in hidden:
        *before, last = pattern.casefold().split("/")
        if fnmatchcase(plain, last) and [_as_read(one) for one in folders[len(folders) - len(before) :]] == before:
            return True
    return False


def _as_read(name: str) -> str:
    """A name as the least exact of the systems reads it."""
    return unicodedata.normalize("NFKC", name).casefold().rstrip(" .")


def shown(path: str) -> str:
    """A path as it stands in a message: short, and with nothing that a terminal would act on."""
    return ascii(path if len(path) <= 200 else path[:200] + "...") if not path.isprintable() else repr(path[:200])


def _fault(name: str, windows: bool) -> str:
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "cannot be the name of a file"
    if size > _LONG:
        return f"is longer than {_LONG} bytes"
    # Format characters are not seen, and some systems leave them out: '.g\u200dit' is '.git' there.
    if any(unicodedata.category(letter) in ("Cc", "Cf", "Zl", "Zp") for letter in name):
        return "has invisible characters"
    if windows and _OF_WINDOWS.search(name):
        return "has a special meaning on Windows"
    return ""
