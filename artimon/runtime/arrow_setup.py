"""Start of Arrow without pandas.

pyarrow imports pandas with the first array that it makes, to recognize its types: 0.3 s and 50 MiB of every process,
none of which passes such types to Arrow."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from typing import Any


class _PandasRefusal(MetaPathFinder):
    """Finder that lets the import of pandas fail."""

    def find_spec(self, fullname: str, _path: object, _target: object = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is not imported for Arrow", name=fullname)


def defer_pandas() -> None:
    """Let Arrow make its first array without pandas, if Arrow is imported and pandas is not. Conversions to pandas
    import it later, and Arrow knows it from then on. For our own processes: a user's program may pass frames to Arrow.
    """
    arrow: Any = sys.modules.get("pyarrow")
    if arrow is None or "pandas" in sys.modules:
        return
    refusal = _PandasRefusal()
    sys.meta_path.insert(0, refusal)
    try:
        arrow.array([0])
    finally:
        sys.meta_path.remove(refusal)
