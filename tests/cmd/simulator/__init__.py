"""Tests of climate-simulate."""
