"""What names the release says the same: the version, its date, and the versions that are supported."""

from __future__ import annotations

import json
import lzma
import re
import tomllib
from datetime import date
from pathlib import Path

import yaml

import orchestrator
from tests.data.kept_runs import release, strategy

ROOT = Path(__file__).parents[2]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text())
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CHANGELOG = (ROOT / "CHANGELOG.md").read_text()
RELEASED = re.findall(r"^## (\d+\.\d+\.\d+) - (\d{4}-\d\d-\d\d)$", CHANGELOG, re.M)


def test_the_newest_release_of_the_changelog_is_the_version_with_its_date() -> None:
    assert RELEASED[0] == (orchestrator.__version__, str(CITATION["date-released"]))
    assert sorted(RELEASED, key=lambda one: [*map(int, one[0].split("."))], reverse=True) == RELEASED


def test_the_citation_file_names_what_it_must_and_says_what_the_project_says() -> None:
    assert {"cff-version", "message", "title", "authors"} <= CITATION.keys()
    assert CITATION["cff-version"] == "1.2.0"
    assert (CITATION["title"], CITATION["version"]) == (PROJECT["name"], orchestrator.__version__)
    assert (CITATION["abstract"], CITATION["license"]) == (PROJECT["description"], PROJECT["license"])
    assert CITATION["keywords"] == PROJECT["keywords"]
    assert isinstance(CITATION["date-released"], date)


def test_the_newest_minor_version_is_supported() -> None:
    minor = orchestrator.__version__.rpartition(".")[0]
    assert f"| {minor} | yes |" in (ROOT / "SECURITY.md").read_text()


def test_what_each_release_wrote_is_kept() -> None:
    """A later release that writes nothing new needs no files of its own. `.dev`: a state before a release."""
    kept = {one.name for one in (ROOT / "tests" / "data" / "releases").iterdir()}
    assert "0.1.0" in kept
    assert {name for name in kept if ".dev" not in name} <= {version for version, _ in RELEASED}


def test_the_files_of_this_release_have_the_graphs_of_this_state() -> None:
    """Until something is unreleased: then the graphs may change, and the files of the release stay."""
    kept = release(orchestrator.__version__)
    unreleased = CHANGELOG.partition("## Unreleased")[2].partition("\n## ")[0].strip()
    if kept.graphs is None or not kept.graphs.exists() or unreleased:
        return
    texts = json.loads(lzma.decompress(kept.graphs.read_bytes()))
    assert texts == {name: strategy(name).to_yaml() for name in texts}
