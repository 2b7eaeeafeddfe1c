"""Ground of all sources: errors, the schedule of polls, text of lines, names of endpoints. May import no other part."""
