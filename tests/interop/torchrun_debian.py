#!/usr/bin/env python3
"""torchrun of Debian 12's PyTorch 1.13, made to work.

On Python 3.11 it fails as shipped: a flag enumeration no longer lists its zero member when iterated, so the reader of
--redirects and --tee gives nothing back. This puts another reader in its place, and nothing else.
"""

import sys

from torch.distributed.elastic.multiprocessing.api import Std


def read_streams(text):
    """ "3" for all ranks, or "0:1,1:2" rank by rank."""
    if ":" not in text:
        return Std(int(text))
    pairs = (item.split(":", 1) for item in text.split(","))
    return {int(rank): Std(int(streams)) for rank, streams in pairs}


if __name__ == "__main__":
    from torch.distributed.run import main

    Std.from_str = staticmethod(read_streams)
    sys.exit(main())
