"""Several data centres: agents that can switch to another site, and the hand-over between sites. docs/sites.md.

In reading order: `record` (persistent state of lanes), `binding` and `placing` (assignment to sites; pure), `names`
(announcements for other sites), `links` (the senders); `handing` and `handover` (from one site to another), `verify`.
"""
