"""Does what the pages promise, in an empty folder, with the commands of an environment that has the wheel alone.

    wheel_alone.py BIN

BIN is the folder of the environment's programs. From the checkout come only the texts that are typed, of the README and
the tutorial, and a PostgreSQL server. It ends with an error at the first thing that is not as promised.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.request import urlopen

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
from tests.support.ports import free_port  # noqa: E402
from tests.support.postgres import PostgresServer  # noqa: E402

BIN = Path(sys.argv[1])
PATIENCE = 120.0
"""Seconds after which something is taken not to happen."""
LETTER = "Dear Ann, we have sent 12.6 euros to Ann."


def environment(store: str | None = None) -> dict[str, str]:
    """Return variables with which programs find nothing of the checkout."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "ORCHESTRATOR"))}
    kept["PATH"] = f"{BIN}{os.pathsep}{kept['PATH']}"
    return {**kept, "VIRTUAL_ENV": str(BIN.parent), **({"ORCHESTRATOR_STORE": store} if store else {})}


def orchestrator(*words: str, code: int = 0, store: str | None = None) -> str:
    """Run a command, and return what it prints."""
    done = subprocess.run(
        [BIN / "orchestrator", *words], env=environment(store), stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
    return done.stdout


@contextmanager
def begun(*words: str, store: str | None = None) -> Iterator[subprocess.Popen[str]]:
    """Start a command, and end it at the end of the block."""
    process = subprocess.Popen(
        [BIN / "orchestrator", *words], env=environment(store), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def until(holds: Callable[[], object]) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.2)


def status(run: str, store: str | None = None) -> object:
    """Return the status of a run."""
    return json.loads(orchestrator("show", run, "--json", store=store))["status"]


def readme() -> str:
    """The first command of the README, but for the installation."""
    command = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.S)[0].split("&& ", 1)[1]
    said = subprocess.run(["bash", "-c", command], env=environment(), capture_output=True, text=True, check=True).stdout
    assert said.splitlines()[-1] == "28", said
    return "the README's first command answers 28"


def tutorial() -> str:
    """The tutorial's agent: it is approved, killed after it paid, resumed, and has paid once."""
    page = (ROOT / "docs" / "tutorial.md").read_text()
    files = re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```$", page, re.S | re.M)
    assert {"shop.py", "refund.py", "app.py"} <= {name for name, _ in files}
    sent = Path("sent.txt")
    for name in dict(files):  # of a file that is changed, the page has the whole text each time, or what is added
        Path(name).write_text("".join(f"{text}\n\n" for other, text in files if other == name))
    assert "every path to pay passes a confirmation" in orchestrator(
        "check", "refund.py", "--tools", "shop.py", "--prove"
    )
    orchestrator("run", "refund.py", "A7", "--tools", "shop.py", "--run-id", "first", code=3)
    with begun("approve", "first") as process:
        until(lambda: sent.exists() and sent.read_text())
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert status("first") == "interrupted"
    assert orchestrator("resume", "first").splitlines()[-1] == LETTER
    assert sent.read_text() == "12.6 euros to Ann\n"
    return "the tutorial's agent was killed after it paid, went on, and paid once"


def page() -> str:
    """The page, with all files that it loads, and the page of a run as one file."""
    port = free_port()
    root = f"http://127.0.0.1:{port}"

    def read(path: str) -> str:
        with urlopen(f"{root}{path}", timeout=30) as found:
            text: str = found.read().decode()
            return text

    def answers() -> bool:
        with suppress(OSError):
            return bool(read("/"))
        return False

    seen: set[str] = set()
    with begun("serve", "refund.py", "--tools", "shop.py", "--port", str(port)):
        until(answers)
        todo = ["/", "/runs/first", "/inbox", "/graphs", "/compose", "/workers"]
        while todo:
            path = todo.pop()
            if path in seen:
                continue
            seen.add(path)
            text = read(path)
            folder = path.rpartition("/")[0]
            for link in re.findall(r"""(?:src=|from |import |<link[^>]* href=)["']([^"'?#:]+\.(?:js|css|svg))""", text):
                whole = link if link.startswith("/") else os.path.normpath(f"{folder}/{link}")
                todo.append(whole)
        assert "first" in read("/api/runs"), "the API lists no run"
    assert len(seen) > 20, seen
    orchestrator("render", "first", "-o", "first.html")
    assert LETTER in Path("first.html").read_text()
    return f"the page serves {len(seen)} files"


def worker() -> str:
    """A worker on PostgreSQL is killed, and another one ends its run."""
    server = PostgresServer.make(durable=True)
    try:
        server.create_database("runs", tables=False)
        store = server.url("runs")
        Path("sent.txt").unlink()
        orchestrator("enqueue", "refund.py", "A7", "--tools", "shop.py", "--run-id", "third", store=store)
        with begun("worker", "--app", "app:app", store=store) as first:
            until(lambda: status("third", store) == "paused")
            orchestrator("approve", "third", "--no-resume", store=store)
            until(lambda: Path("sent.txt").exists() and Path("sent.txt").read_text())
            first.send_signal(signal.SIGKILL)
            first.wait()
        with begun("worker", "--app", "app:app", store=store) as second:
            until(lambda: status("third", store) == "completed")
            second.send_signal(signal.SIGTERM)
            assert second.wait(60) == 0
        assert Path("sent.txt").read_text() == "12.6 euros to Ann\n"
        assert (
            "in order"
            in subprocess.run(
                [BIN / "orchestrator", "store", "check"],
                env=environment(store),
                capture_output=True,
                text=True,
                check=True,
            ).stderr
        )
    finally:
        server.remove()
    return "a worker on PostgreSQL was killed, and another one ended its run"


if __name__ == "__main__":
    assert not [*Path.cwd().iterdir()], "begin in an empty folder"
    for part in (readme, tutorial, page, worker):
        print(part(), flush=True)
