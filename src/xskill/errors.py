"""The errors a user can cause or meet. The command line prints their one sentence and exits with their code."""


class XSkillError(Exception):
    """What was wrong, the value seen, what was expected, what to do."""

    exit_code = 1


class ConfigError(XSkillError):
    """A name or a value in a configuration or on the command line that cannot be used."""

    exit_code = 2


class RunError(XSkillError):
    """A run folder that cannot be used as asked, or a training that cannot go on."""


class CheckpointError(XSkillError):
    """A checkpoint or a model folder that is damaged, or could not be written."""


class DataError(XSkillError):
    """Demonstrations, frames or assets that are missing, damaged or not what they should be."""


class VideoError(DataError):
    """A video that is missing, damaged, too large, or no video."""


class Interrupted(XSkillError):
    """The user asked to stop; what was reached is on disk."""

    exit_code = 130
