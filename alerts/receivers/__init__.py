"""Receivers of alerts, by kind: each kind is one file of this folder, registered by its constant RECEIVER.

Read `receiver_kind` (protocol and registry), `mail`, then `letter_sender` (from the outbox to the receivers). A kind
provides its settings, the check of its addresses in rule files, its rendering of a notification, its delivery, and its
row in docs/alerts.md. May import `alerts.state`.
"""
