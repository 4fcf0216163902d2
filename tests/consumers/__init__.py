"""Programs of others that read what Headwater publishes: each from its released artefact, its values against the source's."""
