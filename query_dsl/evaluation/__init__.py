"""Evaluation of queries: a tree and a store in, series out. One evaluator for series on a grid and for raw series.

Modules in reading order; each imports only those before it:

    planner      tree, levels and time to a plan: the grid, and the level that serves it
    execution    one running query: its store, plan, budget and notes; kinds of values; base of the evaluator
    calling      own functions within a time limit
    own_values   results of own functions, checked
    own          own functions over windows, classes and operands
    fetching     selector and grid to statistics of buckets; notes on what is missing
    windows      window functions over buckets and at raw samples
    sets         set operators
    operands     operators and own functions over several operands
    classes      reducers
    raster       raw samples onto a grid
    seen         times of newest samples
    pushdown     reductions that the store computes itself
    evaluator    a function for each type of node; the entry points `answer`, `evaluate`, `prepare`
    explain      plan and cost of a query
    runner       entry point of sessions and notebooks
    offline      store over Python lists of samples

The evaluator does not use the query text. Another language makes a tree and a `Plan` (any grid: start, step and end
are the plan's; look-back is the width of a window node) and runs `QueryEvaluator(store, plan, tree).answer()`.
"""
