"""Attacks on the event loop: the silence of this server and of a kube-apiserver under each (``make hostile``).

    python -m kubechronicle.ops.development.hostile [--only NAME…] [--reference] [--write]

All traffic stays on 127.0.0.1, and each attack is bounded in bytes and time.
"""
