"""Exceptions and the warning of the package."""


class BrenierError(Exception):
    """Something went wrong; the text is one sentence that says what and where."""


class TableError(BrenierError, ValueError):
    """A table whose contents cannot be used."""


class ColumnError(BrenierError, ValueError):
    """Columns that a table does not have, or has twice."""


class DomainError(BrenierError, ValueError):
    """A value outside the range on which a transform is defined."""


class SettingError(BrenierError, ValueError):
    """A setting outside its range, or one that does not exist."""


class ShapeError(BrenierError, ValueError):
    """Arrays whose shapes do not fit the model."""


class FileError(BrenierError, OSError):
    """A file that cannot be read or written."""


class ModelError(BrenierError, OSError):
    """A model file that is damaged or of another version."""


class DownloadError(BrenierError, OSError):
    """A file that could not be downloaded."""


class NumericalError(BrenierError, ArithmeticError):
    """Arithmetic that broke down: a loss or draw that is not finite, a solver that did not converge."""


class BrenierWarning(UserWarning):
    """Something worth knowing about a table, a training or an observation."""
