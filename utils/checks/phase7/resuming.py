"""Phase 7: resuming."""
