"""Phase 1 of the paper: skills shared by bodies that look nothing alike, from videos without labels."""
