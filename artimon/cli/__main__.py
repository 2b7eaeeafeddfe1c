"""`python -m artimon.cli`: the same as `artimon`."""

from artimon.cli.program import main

main()
