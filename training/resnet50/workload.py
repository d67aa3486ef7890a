"""ResNet-50 v1.5 image classification: torchvision's model, 25,557,032 parameters at 1,000 classes."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from training.batch_norm import average_running_statistics
from training.communicator import Communicator
from training.data.classification import ClassificationData, open_classification
from training.data.synthetic_classification import random_images
from training.workload import Batch, Evaluation, TrainSource, Workload


class ResNet50(Workload):
    """MLPerf Training's image classification benchmark."""

    name = "resnet50"
    data: ClassificationData

    def build_model(self) -> nn.Module:
        from torchvision.models import resnet50

        # Zero-initialised last gamma of each block: Goyal et al., arXiv 1706.02677, section 5.1.
        return resnet50(weights=None, num_classes=self.settings.classes, zero_init_residual=True)

    def open_data(self) -> TrainSource:
        self.data = open_classification(self.spec.data_dir, self.settings, self.shard, self.device, self.spec.seed)
        self.evaluation_samples = self.data.validation_samples
        return self.data.training

    def dummy_batch(self) -> Batch:
        samples = self.settings.local_batch_size
        images, labels = random_images(self.settings, samples, self.device, seed=self.shard.index)
        return Batch(inputs=images, targets=labels, samples=samples, global_samples=samples * self.shard.count)

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        return functional.cross_entropy(model(batch.inputs), batch.targets, label_smoothing=self.settings.label_smoothing)

    def evaluate(self, model: nn.Module, communicator: Communicator) -> Evaluation:
        average_running_statistics(model, communicator)
        correct = torch.zeros((), dtype=torch.int64, device=self.device)
        counted = 0
        for batch in self.data.validation:
            if batch.samples:
                correct += (model(batch.inputs).argmax(dim=1) == batch.targets).sum()
                counted += batch.samples
        totals = communicator.sum(torch.tensor([int(correct), counted], dtype=torch.int64))
        samples = int(totals[1])
        if samples != self.data.validation_samples:
            raise RuntimeError(f"evaluated {samples} images, the validation set has {self.data.validation_samples}")
        return Evaluation(metrics={"accuracy": int(totals[0]) / samples}, samples=samples)

    def mlperf_accuracy(self, metrics: dict[str, float]) -> float:
        return metrics["accuracy"]

    def mlperf_hyperparameters(self, steps_per_epoch: int) -> dict[str, Any]:
        optimizer, schedule = self.settings.optimizer, self.settings.schedule
        decay_epochs = schedule.decay_epochs or self.settings.max_epochs
        values: dict[str, Any] = {
            "opt_name": optimizer.name,
            "opt_base_learning_rate": self.spec.peak_learning_rate,
            "opt_learning_rate_warmup_epochs": schedule.warmup_epochs,
            "model_bn_span": self.settings.communication.batch_norm_ranks * self.settings.local_batch_size,
        }
        if optimizer.name == "lars":
            return values | {
                "lars_opt_base_learning_rate": self.spec.peak_learning_rate,
                "lars_opt_learning_rate_warmup_epochs": schedule.warmup_epochs,
                "lars_opt_end_learning_rate": schedule.end_rate,
                "lars_opt_learning_rate_decay_steps": round(decay_epochs * steps_per_epoch),
                "lars_opt_learning_rate_decay_poly_power": schedule.power,
                "lars_opt_momentum": optimizer.momentum,
                "lars_opt_weight_decay": optimizer.weight_decay,
                "lars_epsilon": optimizer.lars_epsilon,
            }
        return values | {
            "sgd_opt_base_learning_rate": self.spec.peak_learning_rate,
            "sgd_opt_end_learning_rate": schedule.end_rate,
            "sgd_opt_learning_rate_decay_poly_power": schedule.power,
            "sgd_opt_learning_rate_decay_steps": round(decay_epochs * steps_per_epoch),
            "sgd_opt_momentum": optimizer.momentum,
            "sgd_opt_weight_decay": optimizer.weight_decay,
            # v0.6 knows step decay alone under SGD; of a polynomial decay these are the epochs where it begins and ends.
            "opt_learning_rate_decay_boundary_epochs": list(schedule.step_epochs) or [schedule.warmup_epochs, decay_epochs],
        }
