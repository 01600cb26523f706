"""Pages, answers and pictures of runs whose values are encrypted: with their key, and without it."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.stores.codec import AESGCMCodec
from tests.web.api import Api, api

NEEDS = "run 'asks' is encrypted with key 'k1', which is missing here"


def text_of(served: Api, path: str, status: int = 200) -> str:
    answer = served.client.get(path, headers={"accept": "text/html"})
    assert answer.status_code == status, answer.text
    return answer.text.replace("&#39;", "'").replace("&#x27;", "'")


@pytest.mark.full
def test_who_has_the_key_sees_everything_and_who_has_not_is_told_which_one_is_missing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    with api(store=url, codec=AESGCMCodec({"k1": bytes(range(32))})) as served:
        served.start("letter", run_id="asks")
        served.start("plain", run_id="done")
        assert "bees" in text_of(served, "/runs")
        assert "draft of bees" in text_of(served, "/runs/asks")
        assert "Send it?" in text_of(served, "/inbox")
        assert served.get("runs/done")["output"] == ["draft of bees", "finished"]
    with api(store=url) as served:
        assert "(encrypted with key 'k1')" in text_of(served, "/runs")
        assert "bees" not in text_of(served, "/runs")
        assert NEEDS in text_of(served, "/runs/asks", 409)
        assert "(encrypted with key 'k1')" in text_of(served, "/inbox")
        assert NEEDS in served.get("runs/asks", 409)["detail"]
        served.start("plain", run_id="clear")
        assert "draft of bees" in text_of(served, "/runs/clear")
