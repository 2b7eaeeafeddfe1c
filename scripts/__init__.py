"""Tools of a checkout. ./scripts/NAME are the commands, modules do their work. The product imports none of them."""
