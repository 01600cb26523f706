"""`python -m tests.support.script CODE ARGUMENTS` is `python -c CODE ARGUMENTS`, as a module for `starter`."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    exec(compile(sys.argv.pop(1), "<script>", "exec", dont_inherit=True), {"__name__": "__main__"})
