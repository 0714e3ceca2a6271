"""Phase 7: measuring."""
