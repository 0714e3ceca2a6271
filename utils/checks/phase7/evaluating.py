"""Phase 7: evaluating."""
