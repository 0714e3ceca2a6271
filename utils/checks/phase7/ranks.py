"""Phase 7: ranks."""
