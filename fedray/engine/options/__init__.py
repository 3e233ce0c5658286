"""What rounds do besides plain averaging: privacy, device time, earlier models, audits."""
