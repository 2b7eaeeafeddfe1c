"""`python -m artimon.cli`: same as `artimon`."""

from artimon.cli.program import main

main()
