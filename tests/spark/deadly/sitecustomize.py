"""A fault for Python processes whose PYTHONPATH begins here: decoding a batch of a source `deadly/…` kills them."""

from __future__ import annotations

import importlib.abc
import importlib.util
import os
import signal
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class _Deadly(importlib.abc.MetaPathFinder):
    """Replaces `decode_columns` of artimon.model.sample_columns after its import."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if fullname != "artimon.model.sample_columns":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        assert spec is not None
        assert spec.loader is not None
        execute = spec.loader.exec_module

        def execute_and_patch(module: ModuleType) -> None:
            execute(module)
            decode = module.decode_columns

            def decode_or_die(header: Any, data: bytes) -> Any:
                if b"deadly/" in data[:300]:
                    os.kill(os.getpid(), signal.SIGKILL)
                return decode(header, data)

            module.decode_columns = decode_or_die  # type: ignore[attr-defined]

        spec.loader.exec_module = execute_and_patch  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, _Deadly())
