"""`python -m tests.support.script CODE WORDS`: what `python -c CODE WORDS` is, as a module that `starter` can begin."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    exec(compile(sys.argv.pop(1), "<script>", "exec", dont_inherit=True), {"__name__": "__main__"})
