"""torch_store.py legacy|libuv: PyTorch's own store server, for scripts/bench to measure.

Says "listening on 127.0.0.1:PORT" on standard error and ends with its standard input. Run by the
Python whose torch is to be measured; PyTorch 1.13 has only the legacy server.
"""

import inspect
import sys
from datetime import timedelta

from torch.distributed import TCPStore

backend = sys.argv[1]
options = {"wait_for_workers": False, "timeout": timedelta(seconds=30)}
if "use_libuv" in (inspect.getdoc(TCPStore.__init__) or "") + (TCPStore.__init__.__doc__ or ""):
    options["use_libuv"] = backend == "libuv"
elif backend == "libuv":
    sys.exit("torch_store: this PyTorch has no libuv server")
store = TCPStore("127.0.0.1", 0, None, True, **options)
print(f"listening on 127.0.0.1:{store.port}", file=sys.stderr, flush=True)
sys.stdin.read()
