"""Files of a newer format are refused by name with a remedy, and never read in part."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from artimon.model.batch import UnknownFormatError
from artimon.model.batch_codec import verify
from artimon.rawtable.table_state import TableStateError, from_json
from tests.upgrade.golden import batches

GOLDEN = Path(__file__).resolve().parents[1] / "golden"


def test_a_batch_of_a_newer_version() -> None:
    newer = bytearray(batches()[0][0].data)
    newer[4] = 2
    with pytest.raises(UnknownFormatError, match=r"version 2: this program reads version 1; upgrade it, then replay"):
        verify(bytes(newer))


def test_a_state_of_a_newer_format() -> None:
    said = json.loads((GOLDEN / "raw" / "state-2.json").read_text())
    with pytest.raises(TableStateError, match=r"format 3: this program reads formats 1 to 2 and writes nothing"):
        from_json({**said, "format": 3})
