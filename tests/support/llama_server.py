"""llama.cpp's server with one model: `python llama_server.py MODEL PORT`, in an environment that has xllamacpp.

The environment of the tests does not have it, so this imports nothing of the tests.
"""

from __future__ import annotations

import sys
import threading

import xllamacpp  # type: ignore[import-not-found]

model, port = sys.argv[1], int(sys.argv[2])
params = xllamacpp.CommonParams()
params.model.path = model
params.model_alias = {"smollm2"}
params.hostnames, params.port = ["127.0.0.1"], port
params.n_parallel, params.n_ctx = 2, 2 * 4096
params.cpuparams.n_threads = 1  # several workers have a server each
params.use_jinja = True
server = xllamacpp.Server(params)
threading.Event().wait()
