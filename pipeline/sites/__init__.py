"""Several data centres: an agent that may turn to another one, and the hand-over between them. docs/sites.md.

In reading order: `record` (what is remembered of lanes), `binding` and `placing` (which site has what; pure), `names`
(announcements for other sites), `links` (the senders); `handing` and `handover` (from one site to another), `verify`.
"""
