"""What tests of the screens share: a browser, and a server of an agent that sends letters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.browser import chromium
from tests.web.api import Api, api
from tests.web.mail import Post
from tests.web.windows import Screens

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium."""
    with chromium() as browser:
        yield browser


@pytest.fixture
def post() -> Post:
    """An agent that sends letters, for up to four runs."""
    return Post(letters=4)


@pytest.fixture
def served(post: Post) -> Iterator[Api]:
    """A server of that agent."""
    with api(post.graph, model=post.model) as found:
        yield found


@pytest.fixture
def screens(browser: Browser, served: Api) -> Iterator[Screens]:
    """Windows on that server, in which nothing may go wrong."""
    found = Screens(browser, served.url)
    yield found
    found.close()
    assert not found.faults
