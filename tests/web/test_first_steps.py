"""What people read who see the page, or the command that serves it, for the first time."""

from __future__ import annotations

import subprocess
import sys

import httpx2
import pytest

from tests.web.api import api


def test_a_store_without_runs_names_the_graphs_and_the_store_that_a_command_needs() -> None:
    with api() as served:
        text = httpx2.get(f"{served.url}/runs", timeout=60).text
    assert 'Choose one of the <a href="/graphs">graphs</a> and start a run of it.' in text
    assert "--store URL</pre>" in text


def test_a_page_that_only_reads_offers_no_start() -> None:
    with api(settings={"read_only": True}) as served:
        text = httpx2.get(f"{served.url}/runs", timeout=60).text
    assert "start a run of it" not in text
    assert "--store URL</pre>" in text


def test_the_column_of_links_has_a_title_that_says_what_it_is() -> None:
    with api() as served:
        assert '<span class="sr">Actions</span>' in httpx2.get(f"{served.url}/graphs", timeout=60).text


@pytest.mark.full
@pytest.mark.parametrize("width", ["80", "120"])
def test_the_folder_of_graphs_has_to_exist_and_the_help_says_so(width: str) -> None:
    words = [sys.executable, "-m", "orchestrator", "serve", "--help"]
    found = subprocess.run(words, capture_output=True, text=True, check=True, env={"COLUMNS": width}, timeout=60)
    assert "An existing folder for graphs" in " ".join(found.stdout.split())
