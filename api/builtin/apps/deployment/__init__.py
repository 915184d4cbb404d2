"""The rules of Deployment."""
