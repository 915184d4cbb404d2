"""Classes of storage and of volume attributes, what CSI drivers say of themselves, and attachments."""
