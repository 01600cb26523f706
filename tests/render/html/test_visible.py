"""Pages show what cannot be seen as `orchestrator.visible` does."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

import orchestrator.render.html
from orchestrator.visible import BLANK, DEFAULT_IGNORABLE, shown

TEXTS = Path(orchestrator.render.html.__file__).with_name("modules") / "texts.js"


def test_pages_and_terminals_show_the_same_characters_as_escapes() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node")
    hidden = [chr(code) for first, last in (*DEFAULT_IGNORABLE, *BLANK) for code in {first, (first + last) // 2, last}]
    controls = [chr(code) for code in (*range(9), *range(14, 32), *range(127, 160), 0x2028, 0x2029, 0x202E, 0xE000)]
    texts = [f"a{char}b" for char in (*hidden, *controls)]
    texts += [
        "می‌خواهم",
        "क्‍ष",
        "👩‍💻 ❤️ 1️⃣ 👍🏽",
        "日本語 עברית ไทย naïve",
        "two\n\tlines",
        "a\u200db",
        "x\ufe0f",
        "🏴\U000e0067\U000e007f",
    ]
    script = f"""import {{ visible }} from {json.dumps(TEXTS.as_uri())};
        console.log(JSON.stringify(JSON.parse(process.argv[1]).map((text) => visible(text))));"""
    done = subprocess.run(
        [node, "--experimental-default-type=module", "--input-type=module", "-e", script, json.dumps(texts)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert json.loads(done.stdout) == [shown(text) for text in texts]
