"""Grid and level of a query."""

from __future__ import annotations

from typing import Any

from query_dsl.tree import nodes
from tests.query_dsl.plainly.things import Grid, Refused, World

SETTLE = 15_000


def one(found: list[Any], what: str) -> Any:
    """The only one of things that must agree, None if there is none."""
    different = [f for i, f in enumerate(found) if f not in found[:i]]
    if len(different) > 1:
        raise Refused(f"two {what} in one query")
    return different[0] if different else None


def said(root: nodes.Node) -> tuple[Any, ...] | None:
    found: list[tuple[Any, ...]] = []
    for node in nodes.walk(root):
        match node:
            case nodes.Range(range_ms=ms):
                found.append(("range", ms))
            case nodes.Between(start=a, end=b):
                found.append(("between", a, b))
            case nodes.At(instant=t):
                found.append(("at", t))
    chosen: tuple[Any, ...] | None = one(found, "grids")
    return chosen


def reach(node: nodes.Node, step: int | None = None) -> int:
    """Distance before the grid of the farthest fetch: shifts, and with a step the rest of windows."""
    own = node.offset_ms if isinstance(node, nodes.Offset) else 0
    if step and isinstance(node, nodes.Window) and node.before_ms:
        own += max(0, node.before_ms - step)
    return own + max((reach(child, step) for child in nodes.children(node)), default=0)


def output_step(root: nodes.Node) -> int | None:
    steps = [n.step_ms for n in nodes.walk(root) if isinstance(n, nodes.Bucketize)]
    found: int | None = one(steps, "steps")
    return found


def grid_of(time: tuple[Any, ...] | None, now: int, base: int, step: int) -> Grid:
    """The grid of `step` over buckets of `base`."""
    settled = (now - SETTLE) // base * base
    newest = (now - SETTLE) // step * step
    match time or ("range", 600_000):
        case ("range", ms):
            return Grid(newest, step, max(1, -(-ms // step)))
        case ("at", t):
            return Grid(min(t.resolve(now) // step * step, newest), step, 1)
        case ("between", a, b):
            start, end = a.resolve(now), b.resolve(now)
            if start >= end:
                raise Refused("the start does not lie before the end")
            if not a.relative and start % base:
                raise Refused("no bucket ends there")
            if not b.relative and end <= settled and (end % base or (not a.relative and (end - start) % step)):
                raise Refused("no bucket ends there")
            last = min(end, settled) // base * base
            n = -(-(last - start) // step) if a.relative else (last - start) // step
            if n < 1:
                raise Refused("no bucket has settled")
            return Grid(last if a.relative else start + n * step, step, n)
    raise NotImplementedError(time)


def free(time: tuple[Any, ...] | None, now: int, step: int) -> Grid:
    """A grid over raw samples: of any step, and ending exactly where `between` says."""
    if time and time[0] == "between":
        start, end = time[1].resolve(now), time[2].resolve(now)
        if start >= end:
            raise Refused("the start does not lie before the end")
        if (end - start) % step:
            raise Refused("no bucket ends there")
        return Grid(end, step, (end - start) // step)
    return grid_of(time, now, step, step)


def choose(root: nodes.Node, world: World, now: int) -> tuple[Grid, int]:
    """(grid of the answer, step of the level): the finest level whose ring covers the range."""
    time, coarse, back = said(root), output_step(root), reach(root)
    if any(isinstance(n, nodes.Samples) for n in nodes.walk(root)):
        if any(isinstance(n, nodes.Fetch) for n in nodes.walk(root)) or coarse is None:
            raise NotImplementedError("samples and a fetch")
        return free(time, now, coarse), coarse
    for base, count in world.levels:
        if coarse is not None and coarse % base:
            continue
        grid = grid_of(time, now, base, coarse or base)
        span = (now - SETTLE) // base * base - base * count
        spare = base * world.spare[0 if base == world.levels[0][0] else 1]
        if grid.start() - back >= span and grid.start() - reach(root, base) >= span - spare:
            return grid, base
    raise Refused("no level covers the range")
