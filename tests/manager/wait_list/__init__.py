"""Tests of the wait list."""
