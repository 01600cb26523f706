"""`python -m tests.script CODE WORDS` is `python -c CODE WORDS`, in a form that `tests.starter` can begin."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    exec(compile(sys.argv.pop(1), "<script>", "exec", dont_inherit=True), {"__name__": "__main__"})
