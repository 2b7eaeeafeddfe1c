"""Commands of `artimon`. A module here has an `app`, a Typer with its commands, and `PANEL`, their heading in `--help`;
no other registration is needed. Modules may import `artimon.cli` and everything below it."""
