"""The group `files`: places of secrets are hidden, and files that run by themselves are not changed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from orchestrator.private import keep_private, state_folder
from orchestrator.stores import open_store
from orchestrator.tools import tools_from_ref
from orchestrator.tools.builtin.files import HIDDEN, READ_ONLY, SECRETS, Files
from orchestrator.tools.builtin.files.directory import hidden_by, parts_of
from tests.tools.builtin.test_files import done, refused

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """One event loop is enough here: it is all about names."""
    return "asyncio"


SECRET = "s3cret"

SECRET_PLACES = r"""
.ssh/id_ed25519 .ssh/config .ssh/authorized_keys .gnupg/secring.gpg .password-store/mail.gpg .netrc _netrc .authinfo.gpg
.local/share/keyrings/login.keyring .vault-token .config/op/config .config/sops/age/keys.txt backup/store.kdbx
.aws/credentials .aws/sso/cache/x.json .azure/msal_token_cache.json .config/gcloud/credentials.db
.config/gcloud/application_default_credentials.json .kube/config work/kubeconfig .docker/config.json
.config/containers/auth.json .terraform.d/credentials.tfrc.json infra/prod.tfvars infra/terraform.tfstate .s3cfg .boto
.config/rclone/rclone.conf .oci/config .config/doctl/config.yaml .pulumi/credentials.json .databrickscfg
.npmrc .yarnrc.yml .pypirc .gem/credentials .cargo/credentials.toml .m2/settings.xml .gradle/gradle.properties
.composer/auth.json .nuget/NuGet.Config .config/pypoetry/auth.toml .git-credentials .config/git/credentials
.config/gh/hosts.yml .config/hub .config/glab-cli/config.yml project/.git/config project/.git/hooks/pre-commit
.pgpass .my.cnf .mylogin.cnf .htpasswd .smbcredentials .msmtprc .env .env.local project/.envrc deploy/prod.env
project/secrets.yml .streamlit/secrets.toml project/credentials.json project/service-account.json
project/client_secret_1.json .mcp.json .huggingface/token .cache/huggingface/token .config/openai/auth.json
.anthropic/key .claude.json .claude/.credentials.json .codex/auth.json .kaggle/kaggle.json .jupyter/jupyter_server.json
.mozilla/firefox/p.default/logins.json .config/google-chrome/Default/Preferences .config/chromium/Local\x20State
.thunderbird/profiles.ini Library/Keychains/login.keychain-db Library/Application\x20Support/Firefox/x
AppData/Roaming/Microsoft/Windows/x .bash_history .zsh_history .python_history .psql_history .node_repl_history
.local/share/fish/fish_history .lesshst .viminfo .irb-history ConsoleHost_history.txt tls/server.pem tls/server.key
tls/client.p12 keys/putty.ppk keys/id_rsa keys/id_ecdsa.pub java/app.jks vpn/office.ovpn etc/shadow run/secrets/db
.local/state/orchestrator/key .local/state/orchestrator/shown/x .orchestrator/runs.db .orchestrator/undo/1
"""

RUN_PLACES = """
.bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .zshrc .zshenv .zprofile .zlogin .kshrc .tcshrc
.config/fish/config.fish .config/fish/conf.d/x.fish .inputrc project/.mise.toml project/mise.toml .pam_environment
.config/environment.d/x.conf Documents/PowerShell/Microsoft.PowerShell_profile.ps1 .config/autostart/x.desktop
.config/systemd/user/x.service .local/share/systemd/user/x.timer .xinitrc .xsession .xsessionrc .xprofile .Xresources
.local/bin/ls .local/share/applications/x.desktop Desktop/x.desktop crontab etc/cron.d/x etc/crontab var/spool/cron/me
etc/profile.d/x.sh Library/LaunchAgents/x.plist .vimrc .vim/plugin/x.vim .exrc .config/nvim/init.lua .emacs
.emacs.d/init.el project/.dir-locals.el project/.vscode/tasks.json project/x.code-workspace project/.idea/workspace.xml
project/.devcontainer/devcontainer.json .tmux.conf .config/kitty/kitty.conf .gdbinit .gitconfig .config/git/config
project/.gitattributes project/.gitmodules project/.husky/pre-commit project/.githooks/pre-push
project/.pre-commit-config.yaml project/lefthook.yml project/.github/workflows/ci.yml project/.gitlab-ci.yml
project/.circleci/config.yml project/Jenkinsfile venv/lib/python3.11/site-packages/sitecustomize.py
venv/lib/python3.11/site-packages/usercustomize.py venv/lib/python3.11/site-packages/x.pth .pythonrc.py
.pythonrc .pdbrc .config/pip/pip.conf .pip/pip.conf venv/pip.conf .condarc .ipython/profile_default/startup/x.py
project/node_modules/.bin/eslint .cargo/config.toml .gradle/init.gradle .mvn/extensions.xml .Rprofile .irbrc
.sqliterc .psqlrc .pyenv/shims/python .nvm/nvm.sh .oh-my-zsh/custom/x.zsh .cache/pre-commit/x
"""

SHOWN = [
    "notes.md", "Makefile", "project/package.json", "project/setup.py", "project/conftest.py", "gcloud/x.json",
    "environment", "keys.md", "id_map.py", "config.json", "project/secrets.py", "project/history.txt",
    "config/op/config",
]  # fmt: skip
"""Names that resemble hidden ones, and files that run only when a person starts them."""


def places(table: str) -> list[str]:
    return [name.replace(r"\x20", " ") for name in table.split()]


def written(root: Path, names: list[str]) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(SECRET)
    return root


async def listed(files: Files) -> set[str]:
    """All files that can be found by looking into one folder after the other."""
    found: set[str] = set()
    folders = [""]
    while folders:
        folder = folders.pop()
        for row in (await done(files, "view_file", path=folder or ".")).splitlines():
            if row.endswith("/") and row.count("/") == 1:
                folders.append(folder + row)
            elif "/" not in row and row != "(empty)":
                found.add(folder + row)
    return found


def spellings(name: str) -> list[str]:
    """Names that some file system reads as this one."""
    head, _, last = name.rpartition("/")
    folder = f"{head}/" if head else ""
    fullwidth = "".join(chr(ord(letter) + 0xFEE0) if letter.isalpha() else letter for letter in last)
    return [
        name.upper(),
        f"./{name}",
        folder + fullwidth,
        f"{name}.",
        f"{name} ",
        f"{folder}{last[:2]}\u034f{last[2:]}",
    ]


CHANGES: dict[str, dict[str, Any]] = {
    "create_file": {"text": "x", "overwrite": True}, "replace_in_file": {"old": SECRET, "new": "x"},
    "insert_in_file": {"line": 0, "text": "x"}, "undo_edit": {},
}  # fmt: skip
ALL: dict[str, dict[str, Any]] = {"view_file": {}, **CHANGES}


async def refuses(files: Files, path: str, rule: str, calls: dict[str, dict[str, Any]] = ALL) -> None:
    """Each of these calls is refused, names the path and the rule, and shows nothing."""
    for tool, args in calls.items():
        error = await refused(files, tool, path=path, **args)
        assert error.startswith(repr(path)), error
        assert rule in error, (tool, error)
        assert SECRET not in error


def test_the_tables_are_long_enough_to_be_of_use() -> None:
    assert len(places(SECRET_PLACES)) > 100
    assert len(places(RUN_PLACES)) > 70


@pytest.mark.full
@pytest.mark.parametrize("ref", ["files", "files:?dotfiles"])
async def test_where_keys_are_kept_is_neither_listed_nor_read_nor_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ref: str
) -> None:
    """Neither where dot files are hidden nor where they are shown, at the root or below it, in any spelling."""
    monkeypatch.chdir(written(tmp_path, places(SECRET_PLACES) + SHOWN))
    files = tools_from_ref(ref)
    assert isinstance(files, Files)
    assert await listed(files) == set(SHOWN)
    for name in places(SECRET_PLACES):
        for path in (name, f"new/{name}"):
            await refuses(files, path, "here")
        for path in spellings(name):
            assert SECRET not in await refused(files, "view_file", path=path)
            await refused(files, "create_file", path=path, text="x", overwrite=True)
        (tmp_path / "link").symlink_to(tmp_path / name)
        await refuses(files, "link", "symbolic link")
        (tmp_path / "link").unlink()
        assert (tmp_path / name).read_text() == SECRET
    assert not (tmp_path / "new").exists()
    for name in SHOWN:
        await done(files, "replace_in_file", path=name, old=SECRET, new="changed")


async def test_dot_files_are_hidden_unless_they_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [".gitignore", "project/.editorconfig", ".config/app/settings.toml"]
    monkeypatch.chdir(written(tmp_path, [*names, "notes.md"]))
    files = Files(tmp_path)
    assert await listed(files) == {"notes.md"}
    for name in names:
        await refuses(files, name, "is hidden here (it matches '.*')")
    assert hidden_by("...", HIDDEN, str(tmp_path))
    shown = Files(tmp_path, hidden=SECRETS)
    for files in (tools_from_ref("files:.?dotfiles"), shown):
        assert isinstance(files, Files)
        assert await listed(files) == {*names, "notes.md"}
    for name in names:
        await done(shown, "replace_in_file", path=name, old=SECRET, new="changed")


@pytest.mark.full
async def test_what_runs_by_itself_is_shown_and_not_changed(tmp_path: Path) -> None:
    names = places(RUN_PLACES)
    files = Files(written(tmp_path, names), hidden=SECRETS)
    assert await listed(files) == set(names)
    for name in names:
        assert SECRET in await done(files, "view_file", path=name)
        for path in (name, f"new/{name}"):
            await refuses(files, path, "read-only here", CHANGES)
        for path in spellings(name):
            await refused(files, "create_file", path=path, text="x", overwrite=True)
        (tmp_path / "link").symlink_to(tmp_path / name)
        await refuses(files, "link", "symbolic link", CHANGES)
        (tmp_path / "link").unlink()
        assert (tmp_path / name).read_text() == SECRET
        await refuses(Files(tmp_path), name, "here", CHANGES)
    await done(Files(tmp_path, hidden=(), read_only=()), "create_file", path=".bashrc", text="x", overwrite=True)


async def test_a_root_inside_of_a_hidden_folder_shows_it(tmp_path: Path) -> None:
    """Who names a folder as the root wants it; ends of paths are hidden as from any other root."""
    written(tmp_path, [".github/workflows/ci.yml", ".config/app.toml", ".config/gh/hosts.yml"])
    assert await listed(Files(tmp_path / ".github")) == {"workflows/ci.yml"}
    config = Files(tmp_path / ".config")
    assert await listed(config) == {"app.toml"}
    await refuses(config, "gh/hosts.yml", "it matches '.config/gh'")


async def test_files_of_this_library_are_hidden_wherever_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key, stores with their logs, archives, and files that options name; whatever patterns hide."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "to data").symlink_to(tmp_path / "data")
    keep_private(tmp_path / "token.txt")
    store = open_store(f"sqlite:///{tmp_path}/to data/agents.sqlite", archive=f"file://{tmp_path}/old")
    own = [
        "state/orchestrator/key", "state/orchestrator/shown/x", "token.txt", "old/2026/11/28/runs.jsonl",
        *(f"data/agents.sqlite{ending}" for ending in ("", "-wal", "-shm", "-journal", "-damaged-log")),
    ]  # fmt: skip
    try:
        assert state_folder() == tmp_path / "state/orchestrator"
        written(tmp_path, [one for one in own if "agents" not in one] + ["data/a", "old.md"])
        (tmp_path / "data/agents.sqlite-damaged-log").write_text(SECRET)
        files = Files(tmp_path, hidden=(), read_only=())
        assert await listed(files) == {"data/a", "old.md", "to data (a link, not followed)"}
        for name in own:
            for path in (name, name.upper()):
                await refuses(files, path, "it belongs to this library")
        assert "belongs to this library" in await refused(Files(tmp_path / "old/2026"), "view_file", path="11")
    finally:
        await store.close()


async def test_a_file_that_is_no_text_is_not_written_over(tmp_path: Path) -> None:
    """A store of another program, a key, a picture: nothing that a model writes takes the place of one."""
    for name, data in {"store": b"SQLite format 3\0", "key": bytes(range(128, 160)), "picture": b"\x89PNG\r\n"}.items():
        (tmp_path / name).write_bytes(data)
        error = await refused(Files(tmp_path), "create_file", path=name, text="x", overwrite=True)
        assert error.startswith(f"'{name}': the file cannot be read as text")
        assert (tmp_path / name).read_bytes() == data
    (tmp_path / "latin").write_bytes("größer".encode("latin-1"))
    await done(Files(tmp_path, encoding="latin-1"), "create_file", path="latin", text="x", overwrite=True)


async def test_a_crash_during_an_edit_of_what_is_hidden_by_now_is_unknown(tmp_path: Path) -> None:
    """An earlier version wrote there: neither 'it happened' nor 'it did not' is certain."""
    before = Files(tmp_path, hidden=(), read_only=())
    await done(before, "create_file", "run/1/call", path=".bashrc", text="x")
    (tmp_path / ".bashrc").unlink()
    reconcile = getattr(Files(tmp_path).get("create_file"), "reconcile")  # noqa: B009  only tools that have one have the attribute
    with pytest.raises(Exception, match="is hidden here"):
        reconcile("run/1/call")


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="there is no /proc")
async def test_the_environment_of_a_process_is_not_a_file_to_read() -> None:
    for path in (f"{os.getpid()}/environ", "self/environ"):
        await refused(Files("/proc"), "view_file", path=path)


@pytest.mark.parametrize("pattern", ["plans/", "/plans", "./plans", "plans//", "plans/.", "Plans ", "pla\u0301ns"])
async def test_a_pattern_hides_however_it_is_written(tmp_path: Path, pattern: str) -> None:
    name = "pl\u00e1ns" if "\u0301" in pattern else "plans"
    (tmp_path / name).mkdir()
    (tmp_path / name / "may.txt").write_text(SECRET)
    files = Files(tmp_path, hidden=[pattern], read_only=())
    assert await listed(files) == set()
    await refuses(files, f"{name}/may.txt", "is hidden here")


def test_a_pattern_has_no_more_than_names_and_wildcards() -> None:
    """Each matches itself, so none is misspelt in a way that matches nothing."""
    for pattern in (*SECRETS, *READ_ONLY):
        *folders, name = pattern.replace("*", "x").replace("?", "x").split("/")
        assert hidden_by(name, [pattern], os.path.join(os.sep, *folders)), pattern
        with pytest.raises(Exception, match="here"):
            parts_of("/".join([*folders, name]), (), read_only=[pattern])
