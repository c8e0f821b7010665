"""Footplate: from one short file to a trained model, on a laptop and on KubeRay."""

__version__ = "0.1.0"
