"""`python -m tests.notebooks`: execute the notebooks and store their outputs; with names, those that contain one."""

from __future__ import annotations

import sys

from tests.notebooks.books import executed, kernel, paths, write


def main() -> None:
    """Store the outputs."""
    with kernel() as manager:
        for path in paths():
            if not sys.argv[1:] or any(name in path.stem for name in sys.argv[1:]):
                write(executed(path, manager, paint=True), path)
                sys.stdout.write(f"{path.name}: {path.stat().st_size / 1000:.0f} kB\n")


if __name__ == "__main__":
    main()
