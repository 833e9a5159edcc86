"""SOBAS side by side with fixed and tuned buffers, in the testbed: docs/explanation/sobas-results.md."""
