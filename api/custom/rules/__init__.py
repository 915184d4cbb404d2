"""Rules of custom resources (x-kubernetes-validations), written in CEL: their check, compilation and evaluation."""
