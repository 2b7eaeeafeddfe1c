"""Proof that a stack on this machine loses nothing: `./scripts/run --for SECONDS`.

Reading order: `proof` (the steps), `counts` (accepted = raw table = buckets), `host` and `witness` (answers about this
machine beside what it says itself), `answers` (questions about the shop and Artimon), `incident` (the drill: a killed
shop and its mails), `screenshot` (the picture of the page)."""
