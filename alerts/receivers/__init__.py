"""Receivers of alerts, by kind: each kind is one file of this folder, which registers itself by its constant RECEIVER.

Read `kind` (the protocol, and how kinds are found), `mail`, then `letter_sender` (from the outbox to the receivers).
A kind has its settings, the check of its addresses in rule files, its rendering of a notification, its delivery, and
its row in docs/alerts.md. May import `alerts.state`.
"""
