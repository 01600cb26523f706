"""Write the table of docs/evaluation.md: `python -m tests.evaluation`."""

from __future__ import annotations

from tests.evaluation.table import PAGE, measured, page_with, table

if __name__ == "__main__":
    PAGE.write_text(page_with(table(measured())))
