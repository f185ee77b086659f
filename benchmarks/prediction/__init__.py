"""How well traffic is predicted: expectation against the ledger of a rehearsal, on real data."""
