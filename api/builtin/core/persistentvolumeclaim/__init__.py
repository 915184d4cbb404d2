"""The rules of PersistentVolumeClaim."""
