"""Admission: plugins and storage hooks that change or reject a write after authorization and before it is decided."""
