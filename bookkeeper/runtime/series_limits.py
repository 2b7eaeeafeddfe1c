"""Default limits of one process; ARTIMON_SERIES and ARTIMON_SERIES_PER_NAME replace them."""

from __future__ import annotations

SERIES = 100_000
"""Maximum number of variables of a process; further ones go to overflow series."""
SERIES_PER_NAME = 1_000
"""Maximum number of series of one name; a label with more values is probably a mistake."""
