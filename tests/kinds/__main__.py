"""`python -m tests.kinds`: write docs/kinds.md, and the drawings and YAML files of its examples."""

from __future__ import annotations

from tests.kinds.page import DOCS, PLACE, files


def main() -> None:
    """Write the files that differ, and delete those of kinds that are gone."""
    made = files()
    for name, text in made.items():
        path = DOCS / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"docs/{name}")
    for path in [*PLACE.glob("*.svg"), *PLACE.glob("*.yaml")]:
        if f"kinds/{path.name}" not in made:
            path.unlink()
            print(f"docs/kinds/{path.name} is gone")


if __name__ == "__main__":
    main()
