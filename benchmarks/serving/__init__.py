"""Servers of ours and of peers that are asked by several clients."""
