"""Several data centres: agents that can switch to another site, and the mirror between sites. docs/sites.md.

In reading order: `site_record` (persistent state of lanes), `site_binding` and `site_router` (assignment to sites;
pure), `announcement_cache` (announcements for other sites), `multi_site_sender` (the senders); `mirror_progress` and
`mirror` (from one site to another), `sites_report`.
"""
