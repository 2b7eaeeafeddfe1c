"""The whole run of all benchmarks: plan, machine, results, and the page made from them."""
