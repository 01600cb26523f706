"""Paths as a model writes them, and directories that are entered one name at a time, so that no link is followed.

The forms of paths that are allowed are checked before any file is opened.

A path that is checked and then opened can be replaced in between. Here each name is opened relative to a directory that
is already open (`openat`), and the system refuses a link in the same call (`O_NOFOLLOW`).
"""

from __future__ import annotations

import os
import re
import stat
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase, translate
from functools import lru_cache
from types import TracebackType
from typing import Any, Self

from orchestrator.errors import ToolError
from orchestrator.private import as_read, is_private

SECRETS = (
    # Keys and certificates
    "*.pem", "*.key", "*.ppk", "*.p8", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.keytab", "*.kdb", "*.kdbx", "*.ovpn",
    "*.age", "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", ".ssh", ".gnupg", "etc/ssh", "etc/wireguard",
    # Password stores and keyrings
    ".password-store", ".local/share/keyrings", ".local/share/kwalletd", ".config/op", ".config/Bitwarden*",
    ".1password", ".vault-token", ".authinfo*", ".netrc", "_netrc", ".config/sops", ".sops", "Library/Keychains",
    "etc/shadow*", "etc/gshadow*", "run/secrets", "proc/*/environ",
    # Settings of programs that hold passwords or tokens
    ".env*", "*.env", "secrets.y*ml", "secrets.json", "secrets.toml", "credentials.json", "*credentials.csv",
    "client_secret*.json", "service?account*.json", "*firebase-adminsdk*.json", "local.settings.json", "*.tfvars",
    "*.tfstate*", "kubeconfig", "rclone.conf", ".htpasswd", "htpasswd", ".mcp.json", ".cifs*", ".smbcredentials",
    ".fetchmailrc", ".msmtprc", ".muttrc", ".mutt",
    # Cloud services
    ".aws", ".azure", ".config/gcloud", ".kube", ".docker", ".config/containers", "containers/auth.json",
    ".terraform.d", ".terraformrc", ".s3cfg", ".boto", ".config/rclone", ".oci", ".bluemix", ".config/doctl", ".fly",
    ".config/heroku", ".config/netlify", ".vercel", ".pulumi", ".config/hcloud", ".config/linode-cli", ".wrangler",
    ".databrickscfg", ".snowsql", ".minikube",
    # Packages and hosts of code
    ".npmrc", ".yarnrc*", ".pypirc", ".gem/credentials", ".cargo/credentials*", ".m2", ".gradle/gradle.properties",
    ".composer/auth.json", ".config/composer/auth.json", ".nuget", ".config/NuGet", ".config/pypoetry/auth.toml",
    ".config/hub", ".config/gh", ".config/glab-cli", ".git-credentials", ".config/git/credentials", ".git",
    # Databases
    ".pgpass", "pgpass.conf", ".my.cnf", ".mylogin.cnf", ".cqlshrc", ".mongorc.js", ".mongoshrc.js", ".redisclirc",
    # Models and data
    ".huggingface", ".cache/huggingface/token", ".cache/huggingface/stored_tokens", ".config/openai", ".openai",
    ".anthropic", ".claude*", ".codex", ".gemini", ".kaggle", ".config/wandb", ".jupyter", ".local/share/jupyter",
    ".ipython/profile_*/security",
    # Browsers, mail and messages
    ".mozilla", ".config/google-chrome*", ".config/chromium", ".config/BraveSoftware", ".config/microsoft-edge*",
    ".config/vivaldi", ".config/opera", ".thunderbird", ".config/evolution", ".config/Slack", ".config/discord",
    ".config/Signal", "Library/Application Support", "Library/Cookies", "AppData", "logins.json", "Login Data",
    "cookies.sqlite", "key?.db",
    # Histories of shells, databases and editors
    ".*_history*", ".*-history", "*_history.txt", "fish_history", ".zhistory", ".histfile", ".lesshst", ".viminfo",
    ".dbshell",
    # The key of this library's seals, at its usual location
    ".local/state/orchestrator",
)  # fmt: skip
"""Locations of keys, passwords and tokens. `.git` is one: its settings may hold passwords, and its hooks are run."""
HIDDEN = (*SECRETS, ".*")
"""Hidden by default: secrets, and all other names that start with a dot."""
READ_ONLY = (
    # Shells and logins
    ".bash*", ".profile", ".zsh*", ".zlog*", ".zprofile", ".kshrc", ".cshrc", ".tcshrc", ".login", ".logout",
    ".config/fish", ".config/nushell", ".inputrc", "mise*.toml", ".mise*.toml", ".tool-versions", ".pam_environment",
    ".config/environment.d", "*profile.ps1",
    # Sessions, services and timers
    ".config/autostart", ".config/systemd", ".local/share/systemd", ".config/plasma-workspace", ".xinitrc",
    ".xsession*", ".xprofile", ".Xresources", ".Xdefaults", ".config/i3", ".config/sway", ".config/hypr", ".local/bin",
    ".local/share/applications", "*.desktop", "crontab", "crontab.*", "cron.d", "etc/cron*", "var/spool/cron",
    "etc/profile*", "etc/systemd", "etc/sudoers*", "etc/ld.so.*", "Library/LaunchAgents", "Library/LaunchDaemons",
    "autorun.inf",
    # Editors, terminals and debuggers
    ".vimrc", "_vimrc", ".gvimrc", "_gvimrc", ".exrc", ".vim", ".config/nvim", ".emacs*", ".config/emacs", ".spacemacs",
    ".dir-locals*.el", ".vscode*", "*.code-workspace", ".idea", ".zed", ".cursor", ".windsurf", ".devcontainer*",
    ".tmux*", ".config/tmux", ".screenrc", ".nanorc", ".config/kitty", ".wezterm.lua", ".gdbinit", ".lldbinit",
    # Version control, and checks that run with it
    ".gitconfig", ".config/git", ".gitmodules", ".gitattributes", ".hg", ".hgrc", ".svn", ".husky", ".githooks",
    ".pre-commit-*", "lefthook*.y*ml", ".lefthook*", ".lintstagedrc*", ".github", ".gitlab*", ".circleci",
    ".travis.yml", ".buildkite", ".woodpecker*", ".drone.yml", "Jenkinsfile", "azure-pipelines*.y*ml",
    "bitbucket-pipelines.yml", "cloudbuild*.y*ml", "buildspec*.y*ml",
    # Python, JavaScript and other languages
    "sitecustomize.py", "usercustomize.py", "*.pth", ".pythonrc*", ".pythonstartup*", ".pdbrc*", "pip.conf", "pip.ini",
    ".pip", ".config/pip", ".condarc", ".pydistutils.cfg", ".ipython", ".config/matplotlib", "node_modules/.bin",
    ".node_modules", "bunfig.toml", ".pnp.*", ".yarn", ".pnpmfile.cjs", ".cargo", ".rustup", ".gradle", ".mvn",
    ".Rprofile", ".Renviron", ".irbrc", ".pryrc", ".bundle", ".gemrc", ".ghci", ".perldb", ".sqliterc", ".psqlrc",
    ".octaverc", ".julia/config", ".npm", ".deno", ".bun", ".pyenv", ".rbenv", ".nvm", ".asdf", ".sdkman", ".oh-my-zsh",
    ".cache/pre-commit",
)  # fmt: skip
"""Files that other programs run unasked: when a shell, a session, an editor, an interpreter or a program of version
control starts, or a directory is opened. Files that a person starts, such as a Makefile, are not listed.
"""
OWN = ".orchestrator"
"""Prefix of this library's own names, such as the directory of runs and edits. Never shown, never opened."""
_DEEP = 40
_LONG = 255
_OF_WINDOWS = re.compile(r'[<>:"|?*]|[. ]$|~\d|^(con|prn|aux|nul|com\d|lpt\d)(\.|$)', re.IGNORECASE)


def parts_of(
    path: str,
    hidden: Sequence[str] = HIDDEN,
    *,
    read_only: Sequence[str] = (),
    root: str = os.sep,
    windows: bool = os.name == "nt",
) -> tuple[str, ...]:
    """Split a path into its names, none for the root itself.

    Args:
        path: relative, with `/`.
        hidden: patterns of names, or of ends of paths, that are refused at any depth.
        read_only: further patterns, for a path that is to be changed.
        root: the directory that it starts from, absolute and without links.
        windows: also refuse names that have a special meaning on Windows.

    Raises:
        ToolError: the path is absolute, has `..`, or has a name that is hidden or cannot be a file's.
    """
    said = shown(path)
    if unicodedata.normalize("NFKC", path)[:1] in ("/", "\\", "~") or re.match(r"[A-Za-z]:", path):
        raise ToolError(f"{said} is not relative: paths start at the root, such as 'docs/notes.md'; '.' is the root")
    if "\\" in path:
        raise ToolError(f"{said} has a backslash: separate folders by '/'")
    found = tuple(part for part in path.split("/") if part not in ("", "."))
    if len(found) > _DEEP:
        raise ToolError(f"{said} has more than {_DEEP} folders")
    here = root
    for part in found:
        if part == "..":
            raise ToolError(f"{said} has '..': name the file from the root, without it")
        fault = _fault(part, windows)
        if fault:
            raise ToolError(f"{said}: {shown(part)} {fault}")
        why = hidden_by(part, hidden, here)
        if why:
            raise ToolError(f"{said}: {shown(part)} is hidden here ({why}), and is neither shown nor changed")
        why = _matching(part, tuple(read_only), here)
        if why:
            raise ToolError(f"{said}: {shown(part)} is read-only here (it matches {why!r}): other programs run it")
        here = os.path.join(here, part)
    return found


def hidden_by(name: str, hidden: Sequence[str], folder: str) -> str:
    """Return the rule that hides a name, ignoring case and applying the system's own reading of names; empty if none
    does.

    Args:
        folder: the directory of the name, absolute and without links.
    """
    if as_read(name).startswith(OWN) or is_private(os.path.join(folder, name)):
        return "it belongs to this library"
    found = _matching(name, tuple(hidden), folder)
    return f"it matches {found!r}" if found else ""


def _matching(name: str, patterns: tuple[str, ...], folder: str) -> str:
    plain = as_read(name)
    if not _any_of(patterns).match(plain):  # most names: hundreds of patterns are tried at once
        return ""
    folders = as_read(folder).split(os.sep)
    for pattern in patterns:
        *before, last = _names_in(pattern)
        near = folders[len(folders) - len(before) :]
        if fnmatchcase(plain, last) and len(near) == len(before) and all(map(fnmatchcase, near, before)):
            return pattern
    return ""


@lru_cache(maxsize=32)
def _any_of(patterns: tuple[str, ...]) -> re.Pattern[str]:
    """Return a pattern that matches names that fit the last part of one of these patterns."""
    return re.compile("|".join(translate(_names_in(one)[-1]) for one in patterns) or r"(?!)")


def _names_in(pattern: str) -> list[str]:
    """Return the names in a pattern, normalized like file names. `/` at the end and `./` are ignored."""
    return [name for name in map(as_read, pattern.split("/")) if name not in ("", ".")] or [""]


def shown(path: str) -> str:
    """Return a path for use in a message: short, and without terminal control characters."""
    return ascii(path if len(path) <= 200 else path[:200] + "...") if not path.isprintable() else repr(path[:200])


def _fault(name: str, windows: bool) -> str:
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "cannot be the name of a file"
    if size > _LONG:
        return f"is longer than {_LONG} bytes"
    # Format characters are invisible, and some systems ignore them: '.g\u200dit' is '.git' there.
    if any(unicodedata.category(letter) in ("Cc", "Cf", "Zl", "Zp") for letter in name):
        return "has invisible characters"
    if windows and _OF_WINDOWS.search(name):
        return "has a special meaning on Windows"
    return ""


DESCRIPTORS = (
    {os.open, os.mkdir, os.stat, os.unlink, os.rename} <= os.supports_dir_fd
    and os.listdir in os.supports_fd
    and hasattr(os, "O_NOFOLLOW")
)
"""True if this system has all the necessary calls. Elsewhere (Windows) names are checked and then opened: existing
links are refused, but not a link that is created in between."""
_READ = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0)
_GROWN = 1 << 16
"""Bytes that a file may grow while it is read; memory is allocated by its reported size, not by the limit."""
_AT_ONCE = getattr(os, "O_NONBLOCK", 0)
_DIRECTORY = getattr(os, "O_DIRECTORY", 0)


class Directory:
    """An open directory; close it, or use it in a `with`. Names passed to it are single ones, without `/`."""

    def __init__(self, path: str, *, descriptors: bool = DESCRIPTORS, handle: int | None = None) -> None:
        """
        Args:
            path: path of the directory.
            descriptors: whether to keep it open; else its path is used each time.
            handle: its descriptor, if it is already open.

        Raises:
            OSError: the directory does not exist.
        """
        self.path = path
        if handle is None and descriptors:
            handle = os.open(path, os.O_RDONLY | _READ | _DIRECTORY)
        self._handle = handle

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the directory. Closing it twice does no harm."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _at(self, name: str) -> tuple[str, dict[str, Any]]:
        if self._handle is None:
            return os.path.join(self.path, name), {}
        return name, {"dir_fd": self._handle}

    # -- looking -----------------------------------------------------------------------------------------------------

    def status(self, name: str) -> os.stat_result | None:
        """Return the status of a name, of a link itself and not its target; None if the name does not exist."""
        where, more = self._at(name)
        try:
            return os.stat(where, follow_symlinks=False, **more)
        except FileNotFoundError:
            return None

    def names(self) -> list[str]:
        """Return all names in the directory, sorted."""
        return sorted(os.listdir(self.path if self._handle is None else self._handle))

    def inside(self, name: str, *, make: int | None = None) -> Directory:
        """Return a subdirectory.

        Args:
            make: mode of a new directory, which is made if none exists.

        Raises:
            ToolError: it does not exist, or is a link or a file.
        """
        found = self.status(name)
        where, more = self._at(name)
        if found is None and make is not None:
            with suppress(FileExistsError):  # another process has just made it
                os.mkdir(where, make, **more)
            found = self.status(name)
        if found is None:
            raise ToolError(f"there is no folder {shown(name)}")
        refuse_link(name, found)
        if not stat.S_ISDIR(found.st_mode):
            raise ToolError(f"{shown(name)} is not a folder")
        path = os.path.join(self.path, name)
        if self._handle is None:
            return Directory(path, descriptors=False)
        return Directory(path, handle=os.open(where, os.O_RDONLY | _READ | _DIRECTORY, **more))

    def read(self, name: str, limit: int, *, linked: bool = False) -> tuple[bytes, os.stat_result]:
        """Return a file's bytes, and its status at the time of reading.

        Args:
            limit: maximum number of bytes.
            linked: whether the file may have further names, which may be outside the root.

        Raises:
            ToolError: the file does not exist, is not a regular file, is too large, or has further names.
        """
        found = self.status(name)
        if found is None:
            raise ToolError(f"there is no file {shown(name)}")
        _refuse(name, found, limit, linked)
        where, more = self._at(name)
        # Opening a file that has become a pipe would block.
        handle = os.open(where, os.O_RDONLY | _READ | _AT_ONCE, **more)
        with os.fdopen(handle, "rb") as file:
            found = os.fstat(handle)
            _refuse(name, found, limit, linked)
            data = file.read(min(limit, found.st_size + _GROWN) + 1)
        if len(data) > limit:
            raise ToolError(_too_large(name, limit))
        return data, found

    # -- changing ----------------------------------------------------------------------------------------------------

    def create(self, name: str, data: bytes, *, mode: int | None = None) -> None:
        """Write a new file, and flush it to the disk.

        Args:
            mode: its permissions; None: the default for new files.

        Raises:
            FileExistsError: the file exists.
        """
        where, more = self._at(name)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _READ
        handle = os.open(where, flags, 0o666 if mode is None else 0o600, **more)
        with os.fdopen(handle, "wb") as file:
            if mode is not None and hasattr(os, "fchmod"):
                os.fchmod(handle, mode)
            file.write(data)
            file.flush()
            os.fsync(handle)

    def open_lock(self, name: str) -> int:
        """Return a descriptor of a lock file, which is made if it does not exist."""
        where, more = self._at(name)
        return os.open(where, os.O_RDWR | os.O_CREAT | _READ | _AT_ONCE, 0o600, **more)

    def rename(self, old: str, new: str) -> None:
        """Rename a file, atomically replacing a file with the new name."""
        (old_at, old_more), (new_at, _) = self._at(old), self._at(new)
        if not old_more:
            os.replace(old_at, new_at)
        else:
            os.rename(old_at, new_at, src_dir_fd=self._handle, dst_dir_fd=self._handle)
        self.sync()

    def remove(self, name: str) -> None:
        """Remove a file if it exists."""
        where, more = self._at(name)
        try:
            os.unlink(where, **more)
        except FileNotFoundError:
            return
        self.sync()

    def sync(self) -> None:
        """Flush the directory to the disk, if the system supports it."""
        if self._handle is not None:
            os.fsync(self._handle)


@contextmanager
def walked(
    root: str, parts: Sequence[str], *, make: int | None = None, descriptors: bool = DESCRIPTORS
) -> Iterator[Directory]:
    """Return the directory that a path of names leads to from a root.

    Raises:
        ToolError: a directory does not exist, or is a link.
        OSError: the root does not exist.
    """
    here = Directory(root, descriptors=descriptors)
    try:
        for part in parts:
            here, before = here.inside(part, make=make), here
            before.close()
        yield here
    finally:
        here.close()


def is_link(found: os.stat_result) -> bool:
    """Return True for a symbolic link, or a reparse point of Windows."""
    return stat.S_ISLNK(found.st_mode) or bool(getattr(found, "st_reparse_tag", 0))


def refuse_link(name: str, found: os.stat_result) -> None:
    """Refuse a symbolic link.

    Raises:
        ToolError: it is a link.
    """
    if is_link(found):
        raise ToolError(f"{shown(name)} is a symbolic link, and links are not followed: name what it leads to")


def _refuse(name: str, found: os.stat_result, limit: int, linked: bool) -> None:
    refuse_link(name, found)
    if stat.S_ISDIR(found.st_mode):
        raise ToolError(f"{shown(name)} is a folder")
    if not stat.S_ISREG(found.st_mode):
        raise ToolError(f"{shown(name)} is a device, pipe or socket, not a file")
    if found.st_nlink > 1 and not linked:
        raise ToolError(
            f"{shown(name)} is a hard link: the file has further names, which may be outside of the root; "
            "Files(..., hard_links=True) allows it"
        )
    if found.st_size > limit:
        raise ToolError(_too_large(name, limit))


def _too_large(name: str, limit: int) -> str:
    return f"{shown(name)} is larger than {limit} bytes, which is the limit here; Files(..., limit=) sets it"
