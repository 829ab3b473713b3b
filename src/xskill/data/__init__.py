"""What a demonstration is, where it comes from, and how its frames reach the device."""
