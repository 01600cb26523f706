"""Tasks of the project: `nox` runs the default ones, `nox -s NAME` one of them, `nox -l` lists them.

Arguments behind `--` are passed on: `nox -s tests -- tests/kernel -x`. `nox --no-venv` uses the running environment.
"""

from __future__ import annotations

import nox

nox.needs_version = ">=2025.2"
nox.options.sessions = ["lint", "types", "tests"]
nox.options.reuse_existing_virtualenvs = True


@nox.session
def tests(session: nox.Session) -> None:
    """Run the tests, or those that are named."""
    session.install("-e", ".[test]")
    session.run("python", "-m", "pytest", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and formatting; `-- --fix` corrects what can be corrected."""
    session.install("ruff>=0.13")
    if "--fix" in session.posargs:
        session.run("ruff", "check", "--fix", ".")
        session.run("ruff", "format", ".")
    else:
        session.run("ruff", "check", ".")
        session.run("ruff", "format", "--check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """Check types with mypy and pyright."""
    session.install("-e", ".[dev]")
    session.run("mypy")
    session.run("pyright")


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation site into build/site; warnings are errors. `-- serve` shows it while it is edited."""
    session.install("-e", ".[docs]")
    session.run("mkdocs", *(session.posargs or ["build"]), env={"NO_MKDOCS_2_WARNING": "1"})


@nox.session
def pictures(session: nox.Session) -> None:
    """Draw the pictures of the documentation anew."""
    session.install("-e", ".[dev]")
    session.run("python", "-m", "tests.graphs.pictures")
    session.run("python", "-m", "tests.web.pictures")
    session.run("python", "-m", "tests.notebooks")
    session.run("python", "-m", "tests.architecture")


@nox.session
def storm(session: nox.Session) -> None:
    """Run the long forms of the tests; the argument is the scale, 1 by default."""
    session.install("-e", ".[dev]")
    session.run(".ci/storm", *(session.posargs or ["1"]), external=True)


@nox.session
def bench(session: nox.Session) -> None:
    """Measure the library beside bare asyncio, bare sqlite3 and its peers."""
    session.install("-e", ".[bench]")
    session.run("python", "-m", "tests.benchmarks", *session.posargs)


@nox.session(venv_backend="none")
def ci(session: nox.Session) -> None:
    """Run everything that must hold before a change lands, or the parts that are named."""
    session.run(".ci/run", *session.posargs, external=True)
