"""The front end: ONNX files in, forward graphs out. Only this package and the model zoo know onnx."""

from snplan.frontend.export import export_model
from snplan.frontend.importer import import_model
from snplan.frontend.load import LoadedModel, load_model
from snplan.frontend.weights import read_weights

__all__ = ["LoadedModel", "export_model", "import_model", "load_model", "read_weights"]
