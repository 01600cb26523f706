"""Modules as one script: the same program as a browser that loads modules would run; unknown forms are refused."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from orchestrator.render.html.page import BundleError, bundle, shipped_bundle

MODULES = {
    "a": """\
// It begins.
import { say, Sum } from "./b.js";
import { one } from "./c.js";

/**
 * @param {string} word
 * @import { Sum } from "./b.js"
 */
export async function greet(word) { return say(word) + new Sum(one).twice(); }
const hidden = "// no comment";
void greet(hidden).then((text) => console.log(text));
""",
    "b": """\
import { one } from "./c.js";
const hidden = one + 1; /* its own */
export class Sum {
  constructor(n) { this.n = n + hidden; }
  twice() { return 2 * this.n; }
}
export function say(word) { return word + " import from export " + hidden; }
""",
    "c": 'export const one = 1;\nexport {};\nconst hidden = "another";\n',
}


@pytest.mark.full
def test_the_script_does_what_the_modules_do(tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node")
    (tmp_path / "package.json").write_text('{"type": "module"}')
    for name, text in MODULES.items():
        (tmp_path / f"{name}.js").write_text(text)
    script = bundle("a", MODULES.__getitem__)
    (tmp_path / "bundle.cjs").write_text(script)
    said = [subprocess.run([node, str(tmp_path / name)], capture_output=True, text=True, check=True, timeout=60).stdout
            for name in ("a.js", "bundle.cjs")]  # fmt: skip
    assert said[0] == said[1] == "// no comment import from export 26\n"
    assert script.count("const $c =") == 1
    assert "It begins" not in script
    assert "@param" not in script


@pytest.mark.parametrize(
    "line",
    [
        'import one from "./c.js";',
        'import * as c from "./c.js";',
        'import "./c.js";',
        'import { one as two } from "./c.js";',
        'import { one } from "https://example.com/c.js";',
        'import { one } from "../c.js";',
        "export default 1;",
        "export let two = 2;",
        'export { one } from "./c.js";',
        "const text = `two`;",
        'import("./c.js");',
    ],
)
def test_a_form_that_is_not_known_is_refused(line: str) -> None:
    with pytest.raises(BundleError, match=r"a\.js has"):
        bundle("a", {"a": line, "c": MODULES["c"]}.__getitem__)


def test_names_that_are_missing_and_circles_are_refused() -> None:
    missing = {"a": 'import { two } from "./c.js";', "c": MODULES["c"]}
    with pytest.raises(BundleError, match=r"a\.js imports two, which c\.js does not export"):
        bundle("a", missing.__getitem__)
    circle = {"a": 'import { b } from "./b.js";', "b": 'import { a } from "./a.js";\nexport const b = 1;'}
    with pytest.raises(BundleError, match="a -> b -> a"):
        bundle("a", circle.__getitem__)
    with pytest.raises(BundleError, match="end the script"):
        bundle("a", {"a": f"const text = {json.dumps('</scr' + 'ipt>')};"}.__getitem__)


def test_the_shipped_modules_are_all_used_and_small() -> None:
    import orchestrator.render.html

    folder = Path(orchestrator.render.html.__file__).parent / "modules"
    script = shipped_bundle("frozen") + shipped_bundle("framed")
    for file in folder.glob("*.js"):
        assert file.stem == "types" or f"const ${file.stem} =" in script
        assert len(file.read_text().splitlines()) <= 400, file.name
