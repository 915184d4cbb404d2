"""Rules of Deployment."""
