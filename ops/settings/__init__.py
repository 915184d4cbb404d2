"""The settings: tables of flags, types, conversion and the validated record."""
