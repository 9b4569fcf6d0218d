"""Followers: tables and databases that are kept up to date by what is new in a Delta table; and who hears of commits.

Announcements, which go to a topic, are in ``streams.announce``.
"""
