"""Base of all sources: errors, schedule of polls, text of lines, names of endpoints. Imports no other package here."""
