"""Evaluation of queries: a tree and a store in, series out. One evaluator for series on a grid and for raw series.

Modules in reading order; each imports only those before it:

    planner           tree, levels and time to a plan: the grid, and the level that serves it
    newest_buckets    the newest part of a plan's grid
    execution         one running query: its store, plan, budget and notes; kinds of values; base of the evaluator
    time_limit        user-defined functions within a time limit
    udf_results       results of user-defined functions, checked
    udf               user-defined functions over windows, classes and operands
    fetches           selector and grid to statistics of buckets; notes on what is missing
    windows           window functions over buckets and at raw samples
    set_operators     set operators
    operands          operators and user-defined functions over several operands
    class_reduction   reducers
    bucketize         raw samples onto a grid
    newest_times      times of newest samples
    pushed_reduction  reductions that the store computes itself
    evaluator         a function for each type of node; the entry points `answer`, `evaluate`, `prepare`
    explain           plan and cost of a query
    completeness      points that a query of either language should read, and those that are missing
    host_acks         states of silent hosts by the acks of their agents
    query_runner      entry point of sessions and notebooks
    offline           store over Python lists of samples

The evaluator does not use the query text. Another language makes a tree and a `Plan` (any grid: start, step and end
are the plan's; look-back is the width of a window node) and runs `QueryEvaluator(store, plan, tree).answer()`.
"""
