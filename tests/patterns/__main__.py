"""`python -m tests.patterns`: write the table and the drawings of docs/patterns.md."""

from __future__ import annotations

from tests.patterns.page import PAGE, made

if __name__ == "__main__":
    PAGE.write_text(made(), encoding="utf-8")
