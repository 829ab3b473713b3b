"""Going on from a trained model: its skills stay as they are, its policy and aligner are trained on."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from xskill.data.config import DataConfig
from xskill.engine.config import differences, from_json, to_json
from xskill.engine.folder import fingerprint, read_manifest
from xskill.errors import ConfigError, DataError
from xskill.transfer.config import TransferConfig
from xskill.transfer.model import Model, load_model

NOT_LEARNED = {
    "policy": ("execute", "solver", "solver_steps"),
    "aligner": ("rescale", "trust", "advance", "step_back", "leap"),
}
"""What may be set otherwise: no weight depends on it."""
UNSEEN = ("unseen", "level")
"""What a model must not have seen, or else nothing that comes of it has not."""


@dataclass(frozen=True)
class Base:
    """A model to go on from."""

    model: Model
    about: Mapping[str, Any]
    """What its manifest says of where it comes from, to be kept with what comes of it; its weights are its `key`."""

    def fitted(self, config: TransferConfig, where: str) -> TransferConfig:
        """The config with what follows from the model. Raises `ConfigError` where its networks would be others."""
        learned = replace(self.model.transfer.aligner, tokens=self.model.tokens)
        aligner = replace(config.aligner, tokens=config.aligner.tokens or self.model.tokens)
        pairs = {"policy": (self.model.transfer.policy, config.policy), "aligner": (learned, aligner)}
        for part in ("policy",) if config.keep_policy and config.aligner_anew else ("policy", "aligner"):
            before, now = pairs[part]
            changed = differences(to_json(before), to_json(now))
            for name in sorted(set(changed) - set(NOT_LEARNED[part])):
                old, new = changed[name]
                raise ConfigError(
                    f"{where} was trained with transfer.{part}.{name} {json.dumps(old)}, now it is {json.dumps(new)}; "
                    "to go on from it, it must be the same"
                )
        return replace(config, aligner=aligner)


def load_base(folder: str, data: DataConfig, device: torch.device) -> Base:
    """Read the model in `folder`, to be trained on with `data`.

    Raises `CheckpointError` when it is damaged, `DataError` or `ConfigError` when nobody should go on from it.
    """
    path = Path(folder).expanduser()
    manifest = read_manifest(path)
    if "data" not in manifest:
        raise DataError(f"{path} does not say what it was trained on, so nobody would know what has not been seen")
    seen: Mapping[str, Any] = to_json(from_json(DataConfig, manifest["data"], f"{path}: data"))
    for name in UNSEEN:
        if seen[name] != (wanted := to_json(data)[name]):
            raise ConfigError(
                f"{path} was trained with data.{name} {json.dumps(seen[name])}, now it is {json.dumps(wanted)}: what "
                "it has learned from would be taken for unseen"
            )
    kept = {name: value for name, value in manifest.items() if name != "files"}
    return Base(load_model(path, device), {"key": fingerprint(manifest), **kept})
