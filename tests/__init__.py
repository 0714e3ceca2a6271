"""Tests of the course itself."""
