"""Phase 3 of the paper: one prompt video becomes a plan, and the plan is carried out in a closed loop."""
