"""Which questions this user has seen: a plain `approve RUN` approves what was looked at, and not what is asked by now.

It is noted beside the key of the seals (see `trust`), in the user's own directory: a store can come from elsewhere.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.cli.storage import place
from orchestrator.cli.trust import key_file
from orchestrator.json import digest

if TYPE_CHECKING:
    from orchestrator.executor import Run
    from orchestrator.kernel.question import Question


def note(run: Run, url: str) -> None:
    """Note that what a run waits for was printed, in place of what was noted of it before."""
    with suppress(OSError, RuntimeError):  # then the questions have to be named
        file = _file(run.run_id, url)
        if file is None:
            return
        if not run.waiting:
            file.unlink(missing_ok=True)
            return
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = file.with_name(f"{file.name}.{os.getpid()}.{secrets.token_hex(4)}")
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as lines:
            lines.writelines(f"{_digest(question)}\n" for question in run.waiting)
        draft.replace(file)


def was_shown(run_id: str, question: Question, url: str) -> bool:
    """Whether this question, as it is now, was printed for this user when the run was last looked at."""
    try:
        file = _file(run_id, url)
        return file is not None and _digest(question) in file.read_text(encoding="ascii").split()
    except (OSError, RuntimeError, UnicodeDecodeError):
        return False


def _file(run_id: str, url: str) -> Path | None:
    store = place(url)
    if store is None:
        return None
    name = hashlib.sha256(f"{store}\0{run_id}".encode(errors="surrogatepass")).hexdigest()[:32]
    return key_file().with_name("shown") / name


def _digest(question: Question) -> str:
    return digest(question.model_dump(mode="json"))
