"""Phase 7: corpus."""
