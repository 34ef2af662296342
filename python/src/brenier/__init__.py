"""Conditional optimal transport: learn a posterior from pairs, then sample, score and maximise it at any observation.

::

    import brenier as br
    prior = br.Prior(rate=br.log_uniform(0.01, 10), shift=br.normal(0, 2))
    sims = br.simulate(simulator, prior, n=50_000, seed=1)
    train, held_out = sims.split(0.9, seed=1)
    post = br.fit(train, target=["rate", "shift"], given="rest", minutes=2, seed=1)
    draws = post.sample(y_obs, 4000)
    verdict = post.check(held_out)
"""

from ._check import Calibration, Comparison, Verdict, calibrate, compare
from ._core import __version__, threads
from ._data import Table
from ._draws import Draws
from ._errors import (
    BrenierError,
    BrenierWarning,
    ColumnError,
    DomainError,
    DownloadError,
    FileError,
    ModelError,
    NumericalError,
    SettingError,
    ShapeError,
    TableError,
)
from ._picture import Picture
from ._posterior import Mode, Posterior, default_settings, fit, load, methods
from ._prior import (
    Prior,
    beta,
    dirichlet,
    exponential,
    gamma,
    half_normal,
    integer_uniform,
    log_normal,
    log_uniform,
    multivariate_normal,
    normal,
    sample_table,
    student_t,
    truncated_normal,
    uniform,
)
from ._search import Tuned, abc, tune
from ._settings import set_threads
from ._simulate import Simulations, simulate

__all__ = [
    "BrenierError",
    "BrenierWarning",
    "Calibration",
    "ColumnError",
    "Comparison",
    "DomainError",
    "DownloadError",
    "Draws",
    "FileError",
    "Mode",
    "ModelError",
    "NumericalError",
    "Picture",
    "Posterior",
    "Prior",
    "SettingError",
    "ShapeError",
    "Simulations",
    "Table",
    "TableError",
    "Tuned",
    "Verdict",
    "__version__",
    "abc",
    "beta",
    "calibrate",
    "compare",
    "default_settings",
    "dirichlet",
    "exponential",
    "fit",
    "gamma",
    "half_normal",
    "integer_uniform",
    "load",
    "log_normal",
    "log_uniform",
    "methods",
    "multivariate_normal",
    "normal",
    "sample_table",
    "set_threads",
    "simulate",
    "student_t",
    "threads",
    "truncated_normal",
    "tune",
    "uniform",
]
