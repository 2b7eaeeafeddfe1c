"""Command of ./scripts/simulate: runs the transport through thousands of simulated histories of faults."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer

from artimon.cli.common import JsonOption, print_error
from tests.simulation.fleet_links_run import run_links
from tests.simulation.fleet_run import main_result, run_fleet
from tests.simulation.run import fresh_seed, quietly, run_for, run_many, run_seed

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)

SEEDS = 1_000


@app.command()
def simulate(
    seeds: Annotated[int | None, typer.Option(min=1, help="Number of runs; 1000 by default.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="The first seed; 1 by default, drawn with --minutes.")] = None,
    minutes: Annotated[
        float | None, typer.Option(min=0.0, help="Run fresh seeds until one breaks a promise or the time is up.")
    ] = None,
    processes: Annotated[int, typer.Option(min=0, help="Worker processes; 0: one a core.")] = 0,
    trace: Annotated[bool, typer.Option("--trace", help="Print what happens, event by event (one seed).")] = False,
    fleet: Annotated[
        int | None, typer.Option(min=5, help="Simulate the coordination of this many agents instead of the transport.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Run agents, collectors, drivers and shards through seeded faults in virtual time; 1 if a promise is broken."""
    quietly()
    if fleet is not None:
        raise typer.Exit(_simulate_fleet(fresh_seed() if seed is None else seed, seeds or 1, fleet, trace))
    if trace:
        if seeds != 1:
            raise typer.BadParameter("--trace goes with --seeds 1")
        outcome = run_seed(1 if seed is None else seed, print)
        raise typer.Exit(1 if outcome.violation else 0)
    if minutes is None:
        summary = run_many(1 if seed is None else seed, seeds or SEEDS, processes or None)
    elif seeds is not None:
        raise typer.BadParameter("--minutes takes as many seeds as there is time for: leave out --seeds")
    else:
        first = fresh_seed() if seed is None else seed
        print_error(f"seeds from {first} for {minutes:g} minutes")
        summary = run_for(first, minutes, processes or None)
    result = summary.to_json()
    if as_json:
        print(json.dumps(result, indent=2))
    else:
        _print_summary(result)
    raise typer.Exit(1 if summary.violations else 0)


def _simulate_fleet(first: int, seeds: int, agents: int, trace: bool) -> int:
    """Run fleets and print a line of JSON each; 1 if a promise is broken."""
    broken = 0
    for seed in range(first, first + seeds):
        outcome = run_fleet(seed, agents, trace=print_error if trace else None)
        print(json.dumps(main_result(outcome)), flush=True)
        links = run_links(seed, agents, trace=print_error if trace else _ignored)
        print(json.dumps({"part": "links", **asdict(links)}), flush=True)
        broken += bool(outcome.violation) or bool(links.violation)
    return min(1, broken)


def _ignored(_text: str) -> None:
    """Trace nothing."""


def _print_summary(result: dict[str, Any]) -> None:
    figures = result["figures"]
    first, count = result["first_seed"], result["seeds"]
    pace = f"in {result['took_s']:.1f} s, {result['seeds_per_s']:.1f} a second"
    print(f"{count} seeds, {first} to {first + count - 1}, {pace}")
    print(f"again: {result['again']}")
    print(f"{result['events']} events, {result['virtual_s'] / 86_400:.1f} days of virtual time")
    names = ("batches", "produced", "duplicates", "calls", "appends", "agent_starts", "gaps")
    print(", ".join(f"{name.replace('_', ' ')} {figures.get(name, 0)}" for name in names))
    for title, kind in (("planned in this share of them", "special: "), ("took effect", "happened: ")):
        share = {name.removeprefix(kind): n / result["seeds"] for name, n in figures.items() if name.startswith(kind)}
        print(f"{title}: " + ", ".join(f"{name} {part:.0%}" for name, part in sorted(share.items())))
    for one in result["violations"]:
        print_error(f"seed {one['seed']}: {one['what']}\n  replay: {one['replay']}")
    print(f"{len(result['violations'])} violations" if result["violations"] else "every promise was kept")


if __name__ == "__main__":
    app(prog_name="./scripts/simulate")
