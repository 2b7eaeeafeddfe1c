"""Run of all benchmarks: plan, machine, results, and template of the page."""
