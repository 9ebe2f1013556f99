"""Networks of runs as files for other programs: ONNX, TorchScript, a web page that plays by itself."""
