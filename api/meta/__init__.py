"""Rules that every kind shares (meta/v1): ObjectMeta, request options, continue tokens, the stored form."""
