"""Numeric cards: functions that make a question from a random generator, a module per phase."""
