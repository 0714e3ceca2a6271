"""Hidden cases, one module per phase: more of what the visible cases ask for, at other sizes.

They are added while nbgrader grades and stand in no notebook. Feedback says that a hidden case failed, never its
name or numbers. A class keeps this folder (and solutions/) in a private fork.
"""
