"""pz: a batch data-pipeline engine that says what it guarantees."""
