"""Registry of the histograms of a process: look-up, observation, limits, and accumulation of buckets for a poll."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from time import monotonic

from bookkeeper.variables.canonical import Key, short_repr, validate_name
from bookkeeper.variables.cell import COUNTER, DOUBLE, GAUGE
from bookkeeper.variables.cell_table import OVERFLOW, OVERFLOW_LABELS
from bookkeeper.variables.histogram import BUCKET, HISTOGRAM, LE, Histogram, make_variables
from bookkeeper.variables.validation import VariableRefused, to_finite_float, to_float, validate_key
from bookkeeper.variables.variable_registry import VariableRegistry

DEFAULT_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Default bounds, in seconds, for requests and similar operations."""
MAX_BOUNDS = 200


class HistogramTable:
    """Histograms of `variables`. Its lock guards everything except reads of `_routes`, a cache name -> label values ->
    histogram; its readers compare the labels.

    A name has one set of bounds. The limit of series per name applies to its label sets; further ones share the label
    `overflow="true"`."""

    def __init__(self, variables: VariableRegistry) -> None:
        self._variables = variables
        self._all: dict[str, dict[Key, Histogram]] = {}
        self._bounds: dict[str, tuple[float, ...]] = {}
        self._routes: dict[str, dict[tuple[str, ...], Histogram]] = {}
        self._since: dict[Histogram, tuple[int, float]] = {}  # count read by polls, and time of the first such poll
        self._valueless_changes = 0  # incremented whenever there may be one more histogram without observations
        self._swept_at: dict[str, int] = {}

    def handle(
        self, name: str, labels: Mapping[str, str] | None = None, bounds: Iterable[float] | None = None
    ) -> Histogram:
        """Handle of a histogram. `bounds` None: the bounds already used for the name, else DEFAULT_BOUNDS."""
        given = {} if labels is None else labels
        try:
            found = self._routes[name][tuple(given.values())]
            if found.labels == given and (bounds is None or bounds == found.bounds):
                return found
        except Exception:
            pass
        return self._find_slowly(name, given, bounds)

    def _find_slowly(self, name: str, given: Mapping[str, str], bounds: Iterable[float] | None) -> Histogram:
        try:
            name, given = _validate(name, given)
            wanted = None if bounds is None else validate_bounds(name, bounds)
        except VariableRefused as error:
            return HISTOGRAM(self, short_repr(name), {}, DEFAULT_BOUNDS, error)
        with self._variables.lock:
            kept = self._bounds.setdefault(name, wanted or DEFAULT_BOUNDS)
            found = self._cache(HISTOGRAM(self, name, given, kept), given)
        if wanted not in (None, kept):
            text = f"histogram {name} has the bounds {kept}: one name has one set of bounds, {wanted} are not used"
            self._variables.refuse(VariableRefused("bounds", text), whole=False)
        return found

    def _cache(self, made: Histogram, given: Mapping[str, str]) -> Histogram:
        """Histogram of that name and labels: `made` if there was none yet."""
        found = self._get(made.name, made.key)
        if found is None and self._is_full(made.name):
            return made  # the first observation chooses: this one if there is room by then, else the overflow series
        found = self._put(made)
        if len(given) == len(found.labels) and found.route is None:
            found.route = tuple(given.values())
            self._routes.setdefault(found.name, {})[found.route] = found
        return found

    # Observing.

    def observe(self, histogram: Histogram, value: float) -> None:
        """Slow path of `Histogram.observe`."""
        self._variables.write(lambda: self._observe(histogram, to_finite_float(value)), None, histogram)

    def _observe(self, histogram: Histogram, value: float) -> None:
        with self._variables.lock:
            target = self._allocate(histogram)
            place = bisect_left(target.bounds, value)
            if value < 0.0:
                target.has_negative = True
            if target.counts is not None:  # ensured by `_allocate`
                target.counts[place] += 1
                target.total += value

    def _allocate(self, histogram: Histogram) -> Histogram:
        """Return the histogram that takes an observation, created if needed. VariableRefused at the limit."""
        if histogram.refused is not None:
            raise histogram.refused
        table, size = self._variables.table, len(histogram.bounds) + 3
        target = self._get(histogram.name, histogram.key)
        if target is None and self._make_room(histogram.name):
            target = histogram
        if target is not None and target.counts is None and target.key != OVERFLOW and not table.make_space(size):
            target = None
        if target is None:
            target = self._overflow(histogram)
        if target.counts is None:
            if not table.may_overflow(size):
                limit = f"{histogram.name}: {table.limit} variables and more: use fewer names"
                raise VariableRefused("limit", limit)
            target = self._put(target)
            self._create(target)
        return target

    def _overflow(self, histogram: Histogram) -> Histogram:
        name = histogram.name
        self._variables.note_overflow(name, lambda: [one.labels for one in list(self._all.get(name, {}).values())])
        found = self._get(name, OVERFLOW)
        return HISTOGRAM(self, name, OVERFLOW_LABELS, histogram.bounds) if found is None else found

    def _create(self, histogram: Histogram) -> None:
        """Create the histogram and add its variables. VariableRefused if another variable uses one of their names."""
        table = self._variables.table
        made = histogram.variables or make_variables(histogram, self._variables)
        if not histogram.variables:  # no call between this and the store: a signal handler may have set it already
            histogram.variables = made
        for part in histogram.variables:
            current = table.get(part.name, part.key)
            if current is not None and current is not part and current.value is not None:
                text = f"histogram {histogram.name}: {part.name} {part.labels} is {current.described}: use another name"
                raise VariableRefused("type", text)
        self._place(histogram)
        fresh = [0] * (len(histogram.bounds) + 1)
        if histogram.counts is None:  # a signal handler may have created it already; no call from here to the end
            histogram.total = 0.0
            histogram.has_negative = False
            histogram.counts = fresh

    def _place(self, histogram: Histogram) -> None:
        """Add the histogram and its variables to the tables."""
        for part in histogram.variables:
            self._variables.table.replace(self._variables.table.add(part), part)
            part.value, part.kind = (0.0 if part.type == DOUBLE else 0), COUNTER
        self._put(histogram)
        self._variables.version += 1

    # Reading and ending.

    def update_variables(self, histogram: Histogram) -> None:
        """Accumulate the buckets of one histogram, as of one moment, into its variables."""
        with self._variables.lock:
            counts = histogram.counts
            if counts is None:
                return
            seen, total = counts[:], histogram.total
            *buckets, sum_, count = histogram.variables
            if histogram.has_negative and sum_.kind == COUNTER:
                sum_.kind = GAUGE
                self._variables.version += 1
            running = 0
            for bucket, one in zip(buckets, seen):  # noqa: B905 - `strict` came with Python 3.10
                running += one
                bucket.value = running
            sum_.value, count.value = total, running

    def update(self, ends: bool) -> None:
        """Update all histograms before a poll reads; if `ends`, end the expired ones."""
        expiring = self._variables.expiry
        with self._variables.lock:
            for histogram in [one for family in list(self._all.values()) for one in list(family.values())]:
                self.update_variables(histogram)
                after_s = expiring.after_s.get(histogram.name)
                if ends and after_s is not None:
                    self._expire(histogram, after_s)

    def _expire(self, histogram: Histogram, after_s: float) -> None:
        """End the histogram if it expired. Call it after `fold`: its count variable has the value of this poll."""
        now, counts = monotonic(), histogram.counts
        if counts is None:
            return
        shows = int(histogram.variables[-1].value or 0)
        count, since = self._since.get(histogram, (-1, now))
        if count != shows:
            self._since[histogram] = (shows, now)
        elif now - since >= after_s:
            seen = counts[:]
            if sum(seen) == count and counts == seen:  # no call between this and the store
                histogram.counts = None
                self._end(histogram)

    def remove(self, histogram: Histogram) -> None:
        """Ends the histogram of that name and labels if it exists."""
        with self._variables.lock:
            current = self._get(histogram.name, histogram.key)
            if current is not None:
                current.counts = None
                self._end(current)

    def _end(self, histogram: Histogram) -> None:
        """Remove a histogram whose `counts` became None from the tables."""
        self._since.pop(histogram, None)
        self._variables.end(histogram.variables)
        family = self._all.get(histogram.name, {})
        if family.get(histogram.key) is histogram:
            del family[histogram.key]
        routes = self._routes.get(histogram.name, {})
        if histogram.route is not None and routes.get(histogram.route) is histogram:
            del routes[histogram.route]
        histogram.route = None
        if histogram.counts is not None:  # a signal handler has restarted it meanwhile
            self._place(histogram)

    def forget(self) -> None:
        """In a forked child: ends all histograms; handles stay usable."""
        for family in self._all.values():
            for histogram in family.values():
                histogram.counts, histogram.total = None, 0.0
        self._since.clear()
        self._valueless_changes += 1

    # Limits.

    def _get(self, name: str, key: Key) -> Histogram | None:
        family = self._all.get(name)
        return None if family is None else family.get(key)

    def _put(self, histogram: Histogram) -> Histogram:
        """Add `histogram` unless the name and labels have one already; return the one in the table."""
        placed = self._all.setdefault(histogram.name, {}).setdefault(histogram.key, histogram)
        self._valueless_changes += placed.counts is None
        return placed

    def _is_full(self, name: str) -> bool:
        family = self._all.get(name)
        return family is not None and len(family) - (OVERFLOW in family) >= self._variables.table.per_name

    def _make_room(self, name: str) -> bool:
        if self._is_full(name) and self._swept_at.get(name) != self._valueless_changes:
            self._swept_at[name] = self._valueless_changes
            for histogram in list(self._all[name].values()):
                if histogram.counts is None:
                    self._end(histogram)
        return not self._is_full(name)


def _validate(name: str, labels: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Validate name and labels of a histogram: its variables have longer names and one more label."""
    name, given = validate_key(name, labels)
    if given.get(LE):
        raise VariableRefused("labels", f"histogram {name}: the label le is for its buckets, rename yours")
    try:
        validate_name(name + BUCKET)
        validate_key(name, {**given, LE: "+Inf"})
    except ValueError as error:
        raise VariableRefused("name", f"histogram {name}: {error}") from None
    return name, given


def validate_bounds(name: str, bounds: Iterable[float]) -> tuple[float, ...]:
    """Validate bounds: finite, increasing, as floats. A final infinity is dropped, because it is implicit."""
    try:
        given = [to_float(bound) for bound in bounds]
    except Exception as error:
        raise VariableRefused("bounds", f"histogram {name}: {error}") from None
    if given and given[-1] == float("inf"):
        given.pop()
    growing = sorted(set(given)) == given
    if not given or len(given) > MAX_BOUNDS or not growing or any(bound - bound != 0.0 for bound in given):
        raise VariableRefused(
            "bounds", f"histogram {name}: bounds {short_repr(given)}: give 1 to {MAX_BOUNDS} finite numbers that grow"
        )
    return tuple(given)
