"""Field ownership: `metadata.managedFields`, and the sets of field paths it records."""
