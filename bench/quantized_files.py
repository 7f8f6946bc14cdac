"""Quantizes an ONNX model by the tools of the peers, in the environment of ./dev peers-inference.

    quantized_files.py MODEL.onnx DATA.npz FOLDER [--transformer FAMILY,HEADS,WIDTH] [--seven-bits] [--fused]

FAMILY is what ONNX Runtime's fusion calls it: bert, gpt2 or vit. DATA has the samples for calibration, an array for
each input. FOLDER gets one file for each way:

    static_u8s8.onnx       ONNX Runtime, static, QDQ, one scale for each channel of the weights, all operators
    static_s8s8.onnx       the same with signed activations
    static_products.onnx   as static_u8s8, of Conv, Gemm and MatMul alone
    dynamic.onnx           ONNX Runtime, dynamic
    nncf.xml               NNCF for OpenVINO, by its default preset, or that for transformers

With --fused, which needs PyTorch, it gets

    dynamic_fused.onnx     dynamic.onnx behind ONNX Runtime's fusion of attention

What is there stays. The last line of the output is JSON: the reason for each file that could not be made.
"""

import argparse
import json
import os
import pathlib
import shutil
import sys
import tempfile

os.environ.setdefault("NNCF_CI", "1")  # it sends no statistics

import numpy as np

PRODUCTS = ["Conv", "Gemm", "MatMul"]
CALIBRATION_BATCH = 8


def batches(data, size):
    """Dictionaries of `size` rows each."""
    count = len(next(iter(data.values())))
    return [{name: array[i:i + size] for name, array in data.items()} for i in range(0, count, size)]


class ByOnnxRuntime:
    def __init__(self, arguments, data, folder):
        import logging

        from onnxruntime import quantization
        from onnxruntime.quantization.shape_inference import quant_pre_process

        logging.getLogger().setLevel(logging.ERROR)
        self.tools, self.arguments, self.data = quantization, arguments, data
        self.prepared = str(folder / "prepared.onnx")
        try:
            quant_pre_process(str(arguments.model), self.prepared)
        except Exception:  # noqa: BLE001: the inference of symbolic shapes gives up on some models
            quant_pre_process(str(arguments.model), self.prepared, skip_symbolic_shape=True)

    def reader(self):
        rows = iter(batches(self.data, CALIBRATION_BATCH))

        class Reader(self.tools.CalibrationDataReader):
            def get_next(self):
                return next(rows, None)

        return Reader()

    def static(self, path, activations, operators=None):
        types = {"u8": self.tools.QuantType.QUInt8, "s8": self.tools.QuantType.QInt8}
        self.tools.quantize_static(
            self.prepared, str(path), self.reader(), quant_format=self.tools.QuantFormat.QDQ, per_channel=True,
            reduce_range=self.arguments.seven_bits, activation_type=types[activations],
            weight_type=self.tools.QuantType.QInt8, op_types_to_quantize=operators,
        )

    def dynamic(self, path, model=None):
        self.tools.quantize_dynamic(
            model or self.prepared, str(path), per_channel=True, reduce_range=self.arguments.seven_bits,
            weight_type=self.tools.QuantType.QInt8,
        )

    def dynamic_fused(self, path):
        from onnxruntime.transformers.optimizer import optimize_model

        family, heads, width = self.arguments.transformer.split(",")
        fused = optimize_model(str(self.arguments.model), family, num_heads=int(heads), hidden_size=int(width))
        if not any(node.op_type in ("Attention", "MultiHeadAttention") for node in fused.model.graph.node):
            raise RuntimeError("ONNX Runtime's tool finds no attention to fuse")
        with tempfile.TemporaryDirectory() as folder:
            fused.save_model_to_file(f"{folder}/fused.onnx")
            self.dynamic(path, f"{folder}/fused.onnx")


def by_nncf(arguments, data, path):
    import nncf
    import openvino

    model = openvino.Core().read_model(arguments.model)
    rows = batches(data, 1)
    kind = {"model_type": nncf.ModelType.TRANSFORMER} if arguments.transformer else {}
    quantized = nncf.quantize(model, nncf.Dataset(rows), subset_size=len(rows), **kind)
    openvino.save_model(quantized, path, compress_to_fp16=False)


def ways_of(arguments, data, scratch):
    """For each file what writes it to a path."""
    tools = []

    def of_onnxruntime():
        if not tools:
            tools.append(ByOnnxRuntime(arguments, data, scratch))
        return tools[0]

    if arguments.fused:
        return {"dynamic_fused.onnx": lambda path: of_onnxruntime().dynamic_fused(path)}
    return {
        "static_u8s8.onnx": lambda path: of_onnxruntime().static(path, "u8"),
        "static_s8s8.onnx": lambda path: of_onnxruntime().static(path, "s8"),
        "static_products.onnx": lambda path: of_onnxruntime().static(path, "u8", PRODUCTS),
        "dynamic.onnx": lambda path: of_onnxruntime().dynamic(path),
        "nncf.xml": lambda path: by_nncf(arguments, data, path),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--transformer", default="", metavar="FAMILY,HEADS,WIDTH")
    parser.add_argument("--seven-bits", action="store_true", help="weights of 7 bits, for CPUs without VNNI")
    parser.add_argument("--fused", action="store_true")
    arguments = parser.parse_args()
    with np.load(arguments.data) as arrays:
        data = {name: arrays[name] for name in arrays.files}
    arguments.folder.mkdir(parents=True, exist_ok=True)
    failed = {}
    arguments.model, arguments.folder = arguments.model.resolve(), arguments.folder.resolve()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as scratch:
        scratch = pathlib.Path(scratch)
        os.chdir(scratch)  # the inference of shapes leaves files where it runs
        for name, write in ways_of(arguments, data, scratch).items():
            if (arguments.folder / name).exists():
                continue
            made = scratch / "made" / name
            made.parent.mkdir(exist_ok=True)
            try:
                write(made)
            except Exception as error:  # noqa: BLE001: tools raise what they like
                failed[name] = f"{type(error).__name__}: {error}"[:500]
                continue
            # The file of the name comes last: with it all of its data are there.
            for file in sorted(made.parent.iterdir(), key=lambda file: file.name == name):
                shutil.move(file, arguments.folder / file.name)
    print(json.dumps(failed))


if __name__ == "__main__":
    sys.exit(main())
