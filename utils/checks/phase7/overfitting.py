"""Phase 7: overfitting."""
