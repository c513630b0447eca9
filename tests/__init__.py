"""Tests of topics; `sim` holds the simulator that the storage engine is written inside."""
