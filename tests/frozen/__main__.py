"""`python -m tests.frozen`: compare what the code does now with what is kept."""

from __future__ import annotations

import argparse
import sys

from tests.frozen.index import TEXTS, made
from tests.frozen.texts import differences, keep, whole
from tests.kinds.page import COMMAND, stale


def main() -> int:
    """Compare, show or rewrite texts; 1 where anything differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.frozen", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"texts to compare; all without: {', '.join(TEXTS)}")
    parser.add_argument("--write", nargs="+", metavar="NAME", default=[], help="refreeze these texts, and no others")
    parser.add_argument("--whole", metavar="NAME", help="print the text of now, with nothing cut")
    given = parser.parse_args()
    unknown = {*given.names, *given.write, *([given.whole] if given.whole else [])} - TEXTS.keys()
    if unknown:
        parser.error(f"no such text: {', '.join(sorted(unknown))}")
    if given.whole:
        sys.stdout.write(whole(TEXTS[given.whole]()))
        return 0
    for name in given.write:
        keep(name, made(name))
    code = 0
    for name in [] if given.write else given.names or TEXTS:
        found = [*differences(name, made(name))]
        print(f"{name}: {'differs' if found else 'equal'}", flush=True)
        code |= bool(found)
        for line in found:
            print(line)
    if not given.write and not given.names:
        found = stale()
        print(f"docs/kinds.md: {'differs' if found else 'equal'}")
        code |= bool(found)
        for line in found:
            print(f"docs/{line}: if that is meant, run {COMMAND}")
    return code


if __name__ == "__main__":
    sys.exit(main())
