"""Builds a release into `dist`, and checks it: `.ci/run release` runs this in an environment with the tools.

- The wheel and the sdist of the last commit, built twice in other places, times and time zones: equal bytes.
- `twine check --strict` is content, and the wheel has the files of the packages and nothing else; uv builds the
  same one from the sdist.
- It installs in a clean environment of each Python that the project names and this machine has: alone, and with all
  extras; on the first Python with each extra by itself, too. What an extra is for can be imported.
- A quick part of the tests passes with the lowest version of each dependency that the project allows.
- A bill of materials (CycloneDX) lists what is installed with all extras, and each licence permits that.
- The wheel alone, without a checkout, does what the README, the tutorial and the page about workers promise.

`release.py STEP ...` does some steps: build, contents, install, lowest, materials, alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NAME = PROJECT["name"]
VERSION = re.search(r'^__version__ = "(.+)"$', (ROOT / "orchestrator" / "__init__.py").read_text(), re.M)[1]  # type: ignore[index]
OF_DEVELOPERS = {"test", "bench", "docs", "dev"}
EXTRAS = [name for name in PROJECT["optional-dependencies"] if name not in OF_DEVELOPERS]
PYTHONS = [found[1] for name in PROJECT["classifiers"] if (found := re.search(r":: Python :: (3\.\d+)$", name))]
BIN = Path(sys.executable).parent
WHEEL = DIST / f"{NAME.replace('-', '_')}-{VERSION}-py3-none-any.whl"
SDIST = DIST / f"{NAME.replace('-', '_')}-{VERSION}.tar.gz"
MATERIALS = DIST / "materials" / f"{NAME}-{VERSION}.cdx.json"
"""In a folder of its own: `twine upload dist/*` would take it for a distribution."""

USES = {
    "a2a": "protocols.a2a_server", "agui": "protocols.agui", "anthropic": "models.anthropic",
    "browser": "tools.builtin.browser.service", "encryption": "stores.codec", "gemini": "models.gemini",
    "mcp": "tools.mcp.session", "metrics": "executor.worker_health", "otel": "otel", "png": "render.png",
    "postgres": "stores.postgres", "prices": "models.prices", "restate": "engines.restate", "route": "nodes.route",
    "s3": "stores.archive.s3", "sandbox": "tools.builtin.python", "schedule": "executor.schedules",
    "temporal": "engines.temporal", "web": "web.application",
}  # fmt: skip
"""Extra -> a module of the library that uses it."""

QUICK = [
    "tests/kernel/test_record_texts.py", "tests/models", "tests/otel/test_traces.py", "tests/protocols/test_agui.py",
    "tests/web/test_serve.py",
]  # fmt: skip
"""The tests that run with the lowest versions: those of the parts that use dependencies most."""

PERMITTED = re.compile(
    r"\b(MIT|BSD|Apache|ISCL?|PSF|Python Software Foundation|MPL|Mozilla Public|LGPL|Lesser General|Unlicense|Zlib|CC0"
    r"|EPL)(v?\d|\b)",
    re.I,
)
"""Licences that allow a program under Apache-2.0 to use a package: permissive ones, and those whose copyleft ends at
the package (MPL, EPL) or at linking (LGPL)."""
UNNAMED = {"protobuf": "BSD-3-Clause", "resvg_py": "MIT"}
"""Packages whose metadata names no licence: what their licence files say."""


def run(*words: object, where: Path = ROOT, env: dict[str, str] | None = None) -> str:
    """Run a program and return its stdout; end if it fails."""
    done = subprocess.run(
        [*map(str, words)], cwd=where, env={**os.environ, **(env or {})}, stdout=subprocess.PIPE, text=True
    )
    if done.returncode:
        sys.exit(f"{done.stdout}\n{' '.join(map(str, words))}: exit code {done.returncode}")
    return done.stdout


def uv(*words: object, env: dict[str, str] | None = None) -> str:
    """Run uv."""
    return run(BIN / "uv", *words, "-q", env=env)


def _epoch() -> str:
    """Return the time of the last commit, in seconds since 1970: the times of files in a build."""
    return run("git", "log", "-1", "--format=%ct").strip()


# -- build ----------------------------------------------------------------------------------------------------------


def build() -> None:
    """Build the last commit twice, and keep one result."""
    shutil.rmtree(DIST, ignore_errors=True)
    if changed := run("git", "status", "--porcelain"):
        print(f"note: a release has the last commit, without\n{changed}")
    with TemporaryDirectory() as one, TemporaryDirectory() as two:
        first = _built(Path(one) / "here", {"TZ": "UTC"}, 0o022)
        second = _built(Path(two) / "another" / "place", {"TZ": "Asia/Tokyo"}, 0o077)
        if (left := _digests(first)) != (right := _digests(second)):
            sys.exit(f"two builds differ:\n{left}\n{right}")
        shutil.copytree(first, DIST)
    if {WHEEL, SDIST} != {*DIST.iterdir()}:
        sys.exit(f"unexpected names: {[one.name for one in DIST.iterdir()]}")
    for name, digest in _digests(DIST).items():
        print(f"{digest}  {name}")
    print(run(BIN / "twine", "check", "--strict", WHEEL, SDIST).strip())


def _built(place: Path, env: dict[str, str], mask: int) -> Path:
    """Build in a folder that has the files of the last commit; return the folder of the results."""
    place.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
    before = os.umask(mask)
    try:
        with tarfile.open(fileobj=BytesIO(archive)) as files:
            files.extractall(place, filter="data")
        run(
            sys.executable, "-m", "build", "--installer", "uv", "--outdir", "out",
            where=place, env={**env, "SOURCE_DATE_EPOCH": _epoch()},
        )  # fmt: skip
    finally:
        os.umask(before)
    return place / "out"


def _digests(folder: Path) -> dict[str, str]:
    return {one.name: hashlib.sha256(one.read_bytes()).hexdigest() for one in sorted(folder.iterdir()) if one.is_file()}


def contents() -> None:
    """Compare the files of the wheel with those of the last commit, byte for byte."""
    wanted = {"orchestrator/errors.md": "docs/errors.md"}
    for line in run("git", "ls-tree", "-r", "HEAD", "orchestrator", "graphs").splitlines():
        kind, _, path = line.split(maxsplit=2)[0], *line.split("\t")
        if not kind.startswith("12"):  # a link
            wanted[re.sub(r"^graphs/", "orchestrator/strategies/", path)] = path
    with zipfile.ZipFile(WHEEL) as wheel:
        found = {name for name in wheel.namelist() if ".dist-info/" not in name}
        if found != wanted.keys():
            sys.exit(f"the wheel has other files than the packages: {sorted(found ^ wanted.keys())}")
        for name, path in wanted.items():
            if wheel.read(name) != subprocess.run(["git", "show", f"HEAD:{path}"], cwd=ROOT, stdout=-1).stdout:
                sys.exit(f"{name} differs from {path}")
        infos = {name.split("/", 1)[1] for name in wheel.namelist() if ".dist-info/" in name}
    if infos != {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"}:
        sys.exit(f"unexpected metadata: {sorted(infos)}")
    needed = {f"orchestrator/{name}" for name in ("py.typed", "strategies/py.typed", "web/screens/static/shell.js")}
    if needed - found:
        sys.exit(f"missing: {sorted(needed - found)}")
    with tarfile.open(SDIST) as sdist:
        names = sdist.getnames()
    tops = {name.split("/")[1] for name in names if "/" in name}
    if len({*names}) != len(names):
        sys.exit(f"the sdist has files twice: {sorted({name for name in names if names.count(name) > 1})}")
    if missing := {"orchestrator", "graphs", "tests", "docs", "LICENSE", "README.md", "CHANGELOG.md"} - tops:
        sys.exit(f"the sdist lacks {sorted(missing)}")
    with TemporaryDirectory() as folder:  # uv unpacks it by itself, and differs from Python in what it does with links
        uv("build", "--wheel", "--out-dir", folder, SDIST, env={"SOURCE_DATE_EPOCH": _epoch()})
        if (Path(folder) / WHEEL.name).read_bytes() != WHEEL.read_bytes():
            sys.exit("uv builds another wheel from the sdist")
    print(f"{len(found)} files in the wheel")


# -- install --------------------------------------------------------------------------------------------------------


def environment(place: Path, python: str, *extras: str) -> Path | None:
    """Make an environment with the wheel; return its Python. None: there is no such Python here."""
    if subprocess.run([BIN / "uv", "venv", "-q", "-p", python, place], stderr=subprocess.DEVNULL).returncode:
        return None
    # by name, as users install it: the address of a file would be remembered in the environment
    wanted = f"{NAME}[{','.join(extras)}]=={VERSION}" if extras else f"{NAME}=={VERSION}"
    uv("pip", "install", "-p", place, "--find-links", DIST, wanted)
    uv("pip", "check", "-p", place)
    return place / "bin" / "python"


def install() -> None:
    """Install the wheel in clean environments, and import what it is for."""
    if set(EXTRAS) != USES.keys():
        sys.exit(f"USES does not list the extras: {sorted(set(EXTRAS) ^ USES.keys())}")
    there = []
    with TemporaryDirectory() as folder:
        for python in PYTHONS:
            bare = environment(Path(folder) / f"bare-{python}", python)
            if bare is None:
                continue
            there.append(python)
            _smoke(bare, Path(folder))
            whole = environment(Path(folder) / f"all-{python}", python, *EXTRAS)
            assert whole is not None
            _import(whole, Path(folder), "", every=True)
            print(f"Python {python}: alone, and with all extras", flush=True)
        for extra in EXTRAS:
            alone = environment(Path(folder) / f"extra-{extra}", there[0], extra)
            assert alone is not None
            _import(alone, Path(folder), extra)
            shutil.rmtree(Path(folder) / f"extra-{extra}")
        print(f"each of {len(EXTRAS)} extras by itself")
    if untested := [python for python in PYTHONS if python not in there]:
        print(f"not here, so not tested: Python {', '.join(untested)}")


def _smoke(python: Path, where: Path) -> None:
    program = python.with_name("orchestrator")
    store = {"ORCHESTRATOR_STORE": f"sqlite:///{where}/smoke.db"}
    if run(program, "--version", where=where).strip() != f"orchestrator {VERSION}":
        sys.exit("--version prints another version")
    answer = run(program, "run", "tool_user", "What is 20+(2*4)?", "--approve", "none", where=where, env=store)
    if answer.splitlines()[-1] != "28":
        sys.exit(f"the first run answers {answer!r}")


_IMPORT = """
import importlib, importlib.util, pkgutil, sys
from importlib.metadata import packages_distributions, requires, version
from packaging.requirements import Requirement

extra, module, every = sys.argv[1], sys.argv[2], sys.argv[3] == "True"
named = {}
for top, names in packages_distributions().items():
    for name in names:
        named.setdefault(name.lower().replace("_", "-"), []).append(top)
for text in requires("agent-graph-orchestrator") or ():
    one = Requirement(text)
    if one.marker is None or one.marker.evaluate({"extra": extra}):
        version(one.name)  # it is installed, even if the modules are those of what it needs
        for top in named.get(one.name.lower().replace("_", "-"), []):
            if not top.startswith("_") and top.isidentifier() and importlib.util.find_spec(top):
                importlib.import_module(top)
if module:
    importlib.import_module(module)
if every:
    import orchestrator
    for one in pkgutil.walk_packages(orchestrator.__path__, "orchestrator."):
        if not one.name.endswith(("__main__", "supervisor", ".child", "browser_process")):
            importlib.import_module(one.name)
"""


def _import(python: Path, where: Path, extra: str, *, every: bool = False) -> None:
    uv("pip", "install", "-p", python, "packaging")
    run(python, "-c", _IMPORT, extra, f"orchestrator.{USES[extra]}" if extra else "", every, where=where)


def lowest() -> None:
    """Run tests with the lowest allowed version of each dependency."""
    options = [word for extra in EXTRAS for word in ("--extra", extra)]
    direct = {
        re.split(r"[\[<>=~! ]", one)[0].lower()
        for ones in (PROJECT["dependencies"], *(PROJECT["optional-dependencies"][extra] for extra in EXTRAS))
        for one in ones
    }
    with TemporaryDirectory() as folder:
        place, bounds = Path(folder) / "venv", Path(folder) / "constraints.txt"
        compiled = uv(
            "pip", "compile", "--resolution", "lowest-direct", "--no-header", "--no-annotate", "-p", PYTHONS[0],
            *options, "pyproject.toml",
        )  # fmt: skip
        lines = [line for line in compiled.splitlines() if line.split("==")[0] in direct]
        bounds.write_text("\n".join(lines))
        print(" ".join(lines))
        uv("venv", "-p", PYTHONS[0], place)
        uv("pip", "install", "-p", place, "-c", bounds, f"{ROOT}[test]")
        # newer versions of what these versions use may warn about them
        tests = ["-q", "-p", "no:cacheprovider", "-o", "filterwarnings=default", "--disable-warnings", *QUICK]
        print(run(place / "bin" / "python", "-m", "pytest", *tests).splitlines()[-1])


# -- materials ------------------------------------------------------------------------------------------------------


def materials() -> None:
    """Write the bill of materials of the wheel with all extras, and check the licences."""
    with TemporaryDirectory() as folder:
        python = environment(Path(folder) / "venv", PYTHONS[0], *EXTRAS)
        assert python is not None
        MATERIALS.parent.mkdir(parents=True, exist_ok=True)
        run(
            BIN / "cyclonedx-py", "environment", python, "--output-reproducible", "--pyproject", "pyproject.toml",
            "--mc-type", "library", "-o", MATERIALS, env={"SOURCE_DATE_EPOCH": _epoch()},
        )  # fmt: skip
        text = MATERIALS.read_text()
        if leaked := [one for one in ("file:", folder, str(ROOT), str(Path.home()) + "/") if one in text]:
            sys.exit(f"the bill of materials names places of this machine: {leaked}")
    parts = json.loads(text)["components"]
    licences = {f"{part['name']} {part['version']}": sorted({*_licences(part)}) for part in parts}
    licences = {name: found or [UNNAMED.get(name.split()[0], "")] for name, found in licences.items()}
    for name, found in sorted(licences.items()):
        print(f"{name}: {', '.join(found)}")
    if bad := {name: found for name, found in licences.items() if not any(map(PERMITTED.search, found))}:
        sys.exit(f"licences that are unknown, or do not permit this: {bad}")
    print(f"{len(parts)} packages")


def _licences(part: dict[str, object]) -> Iterable[str]:
    given = part.get("licenses", [])
    assert isinstance(given, list)
    for one in given:
        if "expression" in one:
            yield one["expression"]
        else:
            yield (one["license"].get("id") or one["license"].get("name") or "").strip().splitlines()[0][:60]


def alone() -> None:
    """Do without a checkout what the pages promise."""
    with TemporaryDirectory() as folder:
        python = environment(Path(folder) / "venv", PYTHONS[0], "web", "postgres")
        assert python is not None
        (Path(folder) / "empty").mkdir()
        print(run(sys.executable, ROOT / ".ci" / "wheel_alone.py", python.parent, where=Path(folder) / "empty").strip())


STEPS = {step.__name__: step for step in (build, contents, install, lowest, materials, alone)}

if __name__ == "__main__":
    for name in sys.argv[1:] or STEPS:
        print(f"== release: {name}", flush=True)
        STEPS[name]()
