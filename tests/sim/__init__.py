"""The simulator: a disk that forgets, faults, an oracle, and the crash gate (docs/simulator.md)."""
