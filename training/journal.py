"""What rank 0 writes while it trains: events, MLPerf logs and TensorBoard. The other ranks have a null twin."""

from __future__ import annotations

from typing import Any

import torch

from results import events
from results.rundir import RunDirectory


class NullJournal:
    """The journal of every rank but 0: takes everything, writes nothing."""

    def event(self, name: str, **fields: Any) -> None:
        """One line in `events.jsonl`."""

    def mlperf_header(self, *, workload: str, platform: str) -> None:
        """The `submission_*` lines at the top of both MLPerf logs."""

    def mlperf(self, key: str, value: Any = None, **metadata: Any) -> None:
        """A point in time in both MLPerf logs."""

    def mlperf_start(self, key: str, value: Any = None, **metadata: Any) -> None:
        """The start of an interval in both MLPerf logs."""

    def mlperf_stop(self, key: str, value: Any = None, **metadata: Any) -> None:
        """The end of an interval in both MLPerf logs."""

    def scalars(self, step: int, values: dict[str, float]) -> None:
        """TensorBoard scalars by name."""

    def image(self, step: int, name: str, image: torch.Tensor) -> None:
        """A TensorBoard picture, [3, H, W] uint8."""

    def close(self) -> None:
        """Flush everything."""


class Journal(NullJournal):
    """The journal of rank 0."""

    def __init__(self, run_dir: RunDirectory) -> None:
        from torch.utils.tensorboard import SummaryWriter

        from results.mlperf_log import MlperfLogWriter, read_log

        self.run_dir = run_dir
        logged = read_log(run_dir.mlperf_log).events if run_dir.mlperf_log.exists() else []
        self._logged = {(event.key, number) for event in logged if (number := _epoch(event.metadata)) is not None}
        self._mlperf = MlperfLogWriter(run_dir.mlperf_log, run_dir.mlperf_log_v06)
        self._board = SummaryWriter(str(run_dir.tensorboard))

    def event(self, name: str, **fields: Any) -> None:
        events.append(self.run_dir.path, name, **fields)

    def mlperf_header(self, *, workload: str, platform: str) -> None:
        from results.mlperf_log import write_submission_header

        write_submission_header(self._mlperf, workload=workload, platform=platform)

    def mlperf(self, key: str, value: Any = None, **metadata: Any) -> None:
        if self._is_new(key, metadata):
            self._mlperf.event(key, value, **metadata)

    def mlperf_start(self, key: str, value: Any = None, **metadata: Any) -> None:
        if self._is_new(key, metadata):
            self._mlperf.start(key, value, **metadata)

    def mlperf_stop(self, key: str, value: Any = None, **metadata: Any) -> None:
        if self._is_new(key, metadata):
            self._mlperf.end(key, value, **metadata)

    def _is_new(self, key: str, metadata: dict[str, Any]) -> bool:
        """False for what an earlier process has logged of this epoch: the rules want each interval once, also where a run was
        stopped within it, or does it again."""
        number = _epoch(metadata)
        if number is None:
            return True
        new = (key, number) not in self._logged
        self._logged.add((key, number))
        return new

    def scalars(self, step: int, values: dict[str, float]) -> None:
        for name, value in values.items():
            self._board.add_scalar(name, value, step)

    def image(self, step: int, name: str, image: torch.Tensor) -> None:
        self._board.add_image(name, image, step)

    def close(self) -> None:
        self._mlperf.close()
        self._board.close()


def _epoch(metadata: dict[str, Any]) -> int | None:
    """The epoch that a line of an MLPerf log is about."""
    return metadata.get("epoch_num", metadata.get("first_epoch_num"))
