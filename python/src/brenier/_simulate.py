"""Tables of simulations by a Python callable, in this process, in worker processes, or on an executor."""

from __future__ import annotations

import hashlib
import json
import os
import struct
import time
import zlib
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait as wait_for
from typing import TYPE_CHECKING, Any, Callable, Iterator, Sequence, Union

import numpy as np

from . import _core
from ._data import Floats, Table, is_path, to_floats
from ._errors import BrenierError, ColumnError, DomainError, FileError, SettingError, ShapeError
from ._prior import Prior
from ._progress import Progress, ProgressOption, duration
from ._run import read_simulation, wait, warn
from ._settings import whole
from ._worker import Again, Failure, Rows, Spec, adopt, run_own, run_rows, takes_seed

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

#: Where rows are run: ``None`` in this process, ``"processes"`` or a number of them, or any executor.
Where = Union[None, str, int, Executor]

#: Seconds of work in a chunk.
CHUNK_SECONDS = 1.0
#: Rows of a block of a vectorized simulator; fixed, so that a block's seeds do not depend on what runs it.
BLOCK_ROWS = 1000
#: Failures without any success that end a run: the simulator is wrong, not the row.
HOPELESS = 20
#: Times that a chunk may be lost with its worker.
MOST_LOSSES = 3


class Simulations(Table):
    """A table of parameters and outputs, with the prior they were drawn from."""

    def __init__(
        self,
        names: Sequence[str],
        values: Any,
        prior: Prior | None = None,
        failures: Sequence[Failure] = (),
        abandoned: int = 0,
    ) -> None:
        super().__init__(names, values)
        #: The prior, or None where parameters were given.
        self.prior = prior
        #: Rows without outputs, which are not in the table.
        self.failures = list(failures)
        #: Draws for which the simulator returned None and which were drawn again.
        self.abandoned = abandoned

    def _with_rows(self, values: Floats) -> "Simulations":
        return Simulations(self.names, values, self.prior)

    @property
    def parameters(self) -> Table:
        """The parameters alone."""
        return Table(self._parameter_names(), self.values[:, : len(self._parameter_names())])

    @property
    def outputs(self) -> Table:
        """The outputs alone."""
        own = len(self._parameter_names())
        return Table(self.names[own:], self.values[:, own:])

    def _parameter_names(self) -> list[str]:
        if self.prior is None:
            raise ColumnError("the table does not know which of its columns are parameters: it has no prior")
        return self.prior.names


def simulate(
    simulator: Callable[..., Any] | str,
    prior: Prior | None = None,
    n: int | None = None,
    *,
    seed: int = 0,
    executor: Where = None,
    vectorized: bool = False,
    as_array: bool = False,
    parameters: Any = None,
    outputs: Sequence[str] | None = None,
    timeout: float | None = None,
    out: str | os.PathLike[str] | None = None,
    shard: str | None = None,
    progress: ProgressOption = True,
) -> Simulations:
    """Simulates a table of rows (parameters, outputs).

    Row i has the random stream i of ``seed``: its parameters are drawn from it, and so is the seed that the simulator is
    called with. A table is therefore the same whatever runs it.

    Parameters
    ----------
    simulator
        ``simulator(theta, seed)`` takes a dictionary of parameters and an integer, and returns a dictionary, a number or an
        array. It may leave out ``seed``. ``None`` abandons the row, which is drawn again, parameters too; an exception or an
        output that is not finite makes it a failed row, which is recorded in ``failures``. The name of a built-in model,
        such as ``"two-moons"``, works too.
    prior
        The distribution of the parameters.
    n
        Rows.
    executor
        ``None`` runs the rows in this process, ``"processes"`` or a number in worker processes, and any
        ``concurrent.futures.Executor`` (Dask's ``client.get_executor()``, loky, MPI) elsewhere.
    vectorized
        The simulator takes a dictionary of arrays and an array of seeds, in blocks of 1000 rows.
    as_array
        Parameters come as an array in place of a dictionary.
    parameters
        Simulate at these rows (a table, array or file) in place of prior draws.
    outputs
        Names of the outputs of a simulator that returns arrays.
    timeout
        Seconds after which a row counts as failed.
    out
        A table file to write. Finished rows are kept beside it in ``OUT.journal``, and the same call after an interruption
        continues from them.
    shard
        A part of the rows, ``"2/8"`` for the second of eight, or ``"slurm"`` for that of this task of a SLURM array. Parts one after
        the other are the whole table: ``brenier simulate --merge PART… --out TABLE``.
    progress
        ``True``, ``False`` or a callable that receives snapshots.
    """
    seed = whole(seed, "seed")
    if out is not None:
        _check_out(os.fspath(out))
    if isinstance(simulator, str):
        if shard is not None:
            raise SettingError("setting shard: parts of a built-in model are made by the command: brenier simulate --shard")
        return _built_in(simulator, whole(n, "n", 1), seed, out, progress)
    check_arguments(simulator, prior, executor, timeout)
    if parameters is None and prior is None:
        raise SettingError("setting prior: say which prior to draw from, or give the parameters")
    given: Floats | None = None
    if parameters is not None:
        table = Table.read(parameters) if is_path(parameters) else parameters
        names, given = _given_rows(table, prior)
        n = len(given)
    else:
        assert prior is not None
        names = prior.names
    n = whole(n, "n", 1)
    spec = Spec(
        simulator=simulator,
        parameters=names,
        outputs=None if outputs is None else [str(name) for name in outputs],
        vectorized=vectorized,
        as_array=as_array,
        takes_seed=takes_seed(simulator),
        timeout=timeout,
        again=None if given is not None or prior is None else Again(prior, seed),
    )

    def draw(first: int, count: int) -> tuple[Floats, Any]:
        if given is not None:
            return given[first : first + count], _core.row_seeds(seed, first, count)
        assert prior is not None
        return prior._core.rows(seed, first, count)

    identity: list[Any] = [names, spec.outputs, seed, n, vectorized, None if prior is None else prior.blocks]
    if given is not None:
        identity.append(hashlib.sha256(given.tobytes()).hexdigest())
    part = range(n) if shard is None else _part(shard, n, vectorized)
    if shard is not None:
        identity.append([part.start, part.stop])
    run = _Run(spec, draw, part, executor, out, json.dumps(identity), progress)
    stopped = run.go()
    table, failures = run.table()
    result = Simulations(table.names, table.values, prior if given is None else None, failures, run.abandoned)
    if stopped:
        kept = f"; finished rows are kept in {run.journal.path}, and the same call continues" if run.journal else ""
        warn(f"stopped after {len(result) + len(failures)} of {len(part)} rows{kept}")
    elif out is not None:
        result.save(out)
        assert run.journal is not None
        run.journal.remove()
    if failures and not stopped:
        warn(f"{len(failures)} of {len(part)} rows failed and are not in the table; the first, row {failures[0].row + 1}: {failures[0].reason}")
    return result


def _part(shard: str, n: int, vectorized: bool) -> range:
    """The rows of a part; those of a vectorized simulator are whole blocks."""
    ends = _core.shard_rows(str(shard), n)
    part = range(*(min(n, -(-end // BLOCK_ROWS) * BLOCK_ROWS) for end in ends)) if vectorized else range(*ends)
    if not part:
        raise SettingError(f"setting shard: part {shard} of {n} rows is empty: make fewer parts")
    return part


def _check_out(path: str) -> None:
    """Refuses what could not be written, before hours are spent on it."""
    _core.check_format(path)
    if not os.path.isdir(folder := os.path.dirname(os.path.abspath(path))):
        raise FileError(f"{path}: its folder {folder} does not exist; create it first")


def check_arguments(simulator: Any, prior: Any, executor: Any, timeout: float | None) -> None:
    """Refuses arguments that are something else than what is wanted, in words."""
    if not callable(simulator):
        raise SettingError(f"setting simulator: expected a function of the parameters or the name of a built-in model, got {type(simulator).__name__}")
    if prior is not None and not isinstance(prior, Prior):
        raise SettingError(f"setting prior: expected br.Prior(name=br.uniform(0, 1), …), got {type(prior).__name__}")
    if isinstance(executor, (bool, str, int)):
        if executor != "processes" and (isinstance(executor, (bool, str)) or executor < 1):
            raise SettingError(f'setting executor: expected None, "processes", a number of processes or an executor, not {executor!r}')
    elif executor is not None and not hasattr(executor, "submit"):
        raise SettingError(f"setting executor: expected an executor of concurrent.futures, got {type(executor).__name__}")
    if timeout is not None and not timeout > 0:
        raise SettingError(f"setting timeout: expected seconds above 0, not {timeout!r}")


def _given_rows(table: Any, prior: Prior | None) -> tuple[list[str], Floats]:
    from ._data import columns_of

    named = columns_of(table)
    if named is None:
        values = np.atleast_2d(to_floats(table, "parameters"))
        names = prior.names if prior is not None else [f"theta_{j + 1}" for j in range(values.shape[1])]
        if len(names) != values.shape[1]:
            raise ShapeError(f"parameters: expected {len(names)} columns, got {values.shape[1]}")
        return names, values
    have = {name: values for name, values in named}
    names = prior.names if prior is not None else list(have)
    if missing := [name for name in names if name not in have]:
        raise ColumnError(f'the parameters have no column "{missing[0]}"')
    return names, np.ascontiguousarray(np.column_stack([to_floats(have[name], name) for name in names]))


def _built_in(name: str, n: int, seed: int, out: Any, progress: ProgressOption) -> Simulations:
    journal = None if out is None else f"{os.fspath(out)}.journal"
    job = _core.start_simulate(_core.Simulator.built_in(name), n, seed, journal)
    found, _ = wait(job, progress, read_simulation, "stopped before all rows were made")
    if found is None:
        raise KeyboardInterrupt
    names, values, failures, abandoned = found
    result = Simulations(names, values, None, [Failure(*row) for row in json.loads(failures)], abandoned)
    if out is not None:
        result.save(out)
        if os.path.exists(str(journal)):
            os.remove(str(journal))
    return result


class _Journal:
    """Finished rows on disk: a line that says whose they are, then records of (first row, failures, thetas, outputs)."""

    def __init__(self, path: str, identity: str) -> None:
        self.path, self.identity = path, identity

    def _head(self) -> bytes:
        return json.dumps({"kind": "brenier rows", "version": 1, "sha256": hashlib.sha256(self.identity.encode()).hexdigest()}).encode() + b"\n"

    def read(self) -> Iterator[Rows]:
        """The records that are whole; what follows a torn one is cut off."""
        if not os.path.exists(self.path):
            with open(self.path, "wb") as file:
                file.write(self._head())
            return
        with open(self.path, "rb") as file:
            content = file.read()
        head = self._head()
        if not content.startswith(head):
            raise BrenierError(f"{self.path}: belongs to another simulation (other prior, seed, number of rows or outputs): remove it, or choose another `out`")
        at = len(head)
        while at + 16 <= len(content):
            length, check = struct.unpack_from("<QQ", content, at)
            body = content[at + 16 : at + 16 + length]
            if len(body) < length or zlib.crc32(body) != check:
                break
            at += 16 + length
            (size,) = struct.unpack_from("<Q", body)
            note = json.loads(body[8 : 8 + size])
            values = np.frombuffer(body, dtype="<f8", offset=8 + size).reshape(note["rows"], -1)
            failures = [Failure(*failure) for failure in note["failures"]]
            yield Rows(note["first"], values[:, : note["dim"]], values[:, note["dim"] :], note["names"], failures, note["abandoned"])
        with open(self.path, "r+b") as file:
            file.truncate(at)

    def append(self, rows: Rows) -> None:
        """Adds a record, at once and flushed to the system."""
        note = json.dumps({
            "first": rows.first, "rows": len(rows.thetas), "dim": rows.thetas.shape[1], "names": rows.names,
            "failures": [[one.row, one.parameters, one.reason] for one in rows.failures], "abandoned": rows.abandoned,
        }).encode()
        note += b" " * (-len(note) % 8)
        values = np.hstack([rows.thetas, rows.outputs]).astype("<f8").tobytes()
        body = struct.pack("<Q", len(note)) + note + values
        with open(self.path, "ab") as file:
            file.write(struct.pack("<QQ", len(body), zlib.crc32(body)) + body)

    def remove(self) -> None:
        """Forgets the rows."""
        if os.path.exists(self.path):
            os.remove(self.path)


class _Run:
    """A simulation in chunks."""

    def __init__(self, spec: Spec, draw: Any, part: range, where: Where, out: Any, identity: str, progress: ProgressOption) -> None:
        self.spec, self.draw, self.where = spec, draw, where
        #: The first row of the part, and how many there are; ``done`` counts from the first.
        self.begin, self.n = part.start, len(part)
        self.done = np.zeros(self.n, dtype=bool)
        self.parts: list[Rows] = []
        self.failed = 0
        self.abandoned = 0
        self.finished = 0
        self.names: list[str] | None = spec.outputs
        self.width: int | None = None
        self.rate: float | None = None
        self.first_error = ""
        self.progress = Progress(progress)
        self.journal = _Journal(f"{os.fspath(out)}.journal", identity) if out is not None else None
        if self.journal:
            for rows in self.journal.read():
                self._accept(rows)
        self.resumed = self.finished
        #: The first rows of this run. If all of them fail, the simulator is wrong and the run ends, whatever finishes first.
        self.first_rows = self.begin + np.flatnonzero(~self.done)[:HOPELESS]
        self.first_failed = 0

    def _accept(self, rows: Rows) -> None:
        succeeded = len(rows.thetas) - len(rows.failures)
        if succeeded:
            if self.width is None:
                self.width = rows.outputs.shape[1]
                self.names = rows.names or self.names or [f"y_{j + 1}" for j in range(self.width)]
                clash = set(self.names) & set(self.spec.parameters)
                if clash or len(set(self.names)) != self.width:
                    wrong = sorted(clash) or self.names
                    raise ColumnError(f"outputs must have {self.width} names of their own, other than the parameters': {', '.join(wrong)}")
            if rows.outputs.shape[1] != self.width or (rows.names and rows.names != self.names):
                raise ShapeError(f"row {rows.first + 1}: the simulator returned {rows.names or rows.outputs.shape[1]}, and {self.names} before")
        place = rows.first - self.begin
        self.done[place : place + len(rows.thetas)] = True
        self.parts.append(rows)
        self.failed += len(rows.failures)
        self.abandoned += rows.abandoned
        self.finished += len(rows.thetas)
        if rows.failures and not self.first_error:
            self.first_error = f"row {rows.failures[0].row + 1}: {rows.failures[0].reason}"

    def _take(self, rows: Rows) -> None:
        if self.journal:
            self.journal.append(rows)
        self._accept(rows)
        self.first_failed += int(np.isin(self.first_rows, [failure.row for failure in rows.failures]).sum())
        if self.first_failed == HOPELESS:
            raise DomainError(f"all of the first {HOPELESS} rows failed; {self.first_error}")
        if rows.seconds > 0:
            rate = len(rows.thetas) / rows.seconds
            self.rate = rate if self.rate is None else 0.5 * (self.rate + rate)
        made = self.finished - self.resumed
        speed = made / max(self.progress.seconds, 1e-9)
        left = (self.n - self.finished) / max(speed, 1e-9)
        show = self.progress.show_last if self.finished == self.n else self.progress.show
        show({
            "rows": self.finished, "of": self.n, "failed": self.failed, "abandoned": self.abandoned, "rate": speed,
            "part": self.finished / self.n,
            "line": f"{self.finished} of {self.n} rows  {speed:.0f}/s  " + (f"{duration(left)} left" if left else duration(self.progress.seconds)) + (f"  {self.failed} failed" if self.failed else ""),
        })

    def _chunks(self, workers: int, seconds: float) -> Iterator[tuple[int, int]]:
        """First row and number of rows of the chunks that are still to be made."""
        row = 0
        while row < self.n:
            if self.done[row]:
                ahead = self.done[row:]
                row += len(ahead) if ahead.all() else int(np.argmin(ahead))
                continue
            if self.spec.vectorized:
                most = BLOCK_ROWS - (self.begin + row) % BLOCK_ROWS
            elif self.rate is None:
                most = 8
            else:
                share = -(-(self.n - self.finished) // (2 * workers)) if workers > 1 else self.n
                most = max(1, min(int(seconds * self.rate), share, 1 << 20))
            ahead = self.done[row : row + most]
            end = row + (int(np.argmax(ahead)) if ahead.any() else len(ahead))
            yield self.begin + row, end - row
            row = end

    def go(self) -> bool:
        """Makes all rows; whether Ctrl-C stopped it."""
        try:
            if self.where is None:
                for first, count in self._chunks(1, 0.2):
                    self._take(run_rows(self.spec, first, *self.draw(first, count)))
            else:
                self._go_elsewhere()
        except KeyboardInterrupt:
            return True
        finally:
            self.progress.close()
        return False

    def _go_elsewhere(self) -> None:
        own = isinstance(self.where, (str, int))
        workers = self.where if isinstance(self.where, int) else workers_of(self.where)
        pool: Any = worker_pool(self.spec, workers) if own else self.where
        window = 2 * workers
        flying: dict[Future[Rows], tuple[int, int]] = {}
        again: list[tuple[int, int]] = []
        losses: dict[int, int] = {}
        chunks = self._chunks(workers, CHUNK_SECONDS)

        def submit(first: int, count: int) -> None:
            thetas, seeds = self.draw(first, count)
            future = pool.submit(run_own, first, thetas, seeds) if own else pool.submit(run_rows, self.spec, first, thetas, seeds)
            flying[future] = (first, count)

        try:
            while True:
                lost: list[tuple[int, int, BaseException]] = []
                while len(flying) < window and not lost:
                    chunk = again.pop() if again else next(chunks, None)
                    if chunk is None:
                        break
                    try:
                        submit(*chunk)
                    except BrokenExecutor as broken:
                        lost.append((*chunk, broken))
                if not flying and not lost:
                    break
                ready, _ = wait_for(list(flying), timeout=0.0 if lost else 0.5, return_when=FIRST_COMPLETED)
                for future in ready:
                    chunk = flying.pop(future)
                    error = None if future.cancelled() else future.exception()
                    if not future.cancelled() and error is None:
                        self._take(future.result())
                    else:
                        lost.append((*chunk, error or BrenierError("the task was cancelled")))
                if any(isinstance(error, BrokenExecutor) for *_, error in lost):
                    # All tasks of a broken pool are lost.
                    lost += [(*chunk, BrokenExecutor()) for chunk in flying.values()]
                    flying.clear()
                    if own:
                        pool.shutdown(wait=False)
                    else:
                        warn(f"the executor broke ({type(lost[0][2]).__name__}: a worker died); {workers} processes of this one make the other rows", 4)
                    own, pool = True, worker_pool(self.spec, workers)
                for first, count, error in lost:
                    self._lost(first, count, error, losses, again, own)
        except BaseException:
            for future in flying:
                future.cancel()
            if own:
                _kill(pool)
            raise
        if own:
            pool.shutdown()

    def _lost(self, first: int, count: int, error: BaseException, losses: dict[int, int], again: list[tuple[int, int]], own: bool) -> None:
        """A chunk that was lost with its worker: it is run again, in smaller parts; a row that does so repeatedly fails."""
        losses[first] = losses.get(first, 0) + 1
        if losses[first] <= MOST_LOSSES and count > 1 and own:
            half = (count + 1) // 2
            again += [(first + half, count - half), (first, half)]
            losses[first + half] = losses[first]
        elif losses[first] <= MOST_LOSSES:
            again.append((first, count))
        elif own and count == 1:
            theta = self.draw(first, 1)[0]
            failure = Failure(first, theta[0].tolist(), "its worker process died")
            self._take(Rows(first, np.array(theta), np.full((1, self.width or 0), np.nan), None, [failure]))
        elif own:
            again += [(row, 1) for row in range(first, first + count)]
        else:
            kept = f"; finished rows are kept in {self.journal.path}" if self.journal else ""
            raise BrenierError(f"rows {first + 1} to {first + count} failed {MOST_LOSSES + 1} times on the executor: {type(error).__name__}: {error}{kept}") from error

    def table(self) -> tuple[Table, list[Failure]]:
        """The rows that succeeded, in order; of a run that was stopped, those before the first that is missing."""
        end = self.n if self.done.all() else int(np.argmin(self.done))
        width = self.width or 0
        values = np.full((self.n, len(self.spec.parameters) + width), np.nan)
        failures: list[Failure] = []
        for rows in self.parts:
            first = rows.first - self.begin
            place = slice(first, first + len(rows.thetas))
            values[place, : len(self.spec.parameters)] = rows.thetas
            if rows.outputs.shape[1] == width:
                values[place, len(self.spec.parameters) :] = rows.outputs
            failures += rows.failures
        failures = sorted((one for one in failures if one.row - self.begin < end), key=lambda one: one.row)
        keep = np.ones(self.n, dtype=bool)
        keep[end:] = False
        keep[[one.row - self.begin for one in failures]] = False
        return Table(self.spec.parameters + (self.names or []), values[keep]), failures


def workers_of(executor: Any) -> int:
    """The workers of an executor, as far as it tells; otherwise as many as this machine has cores."""
    for name in ("_max_workers", "num_workers"):
        if isinstance(own := getattr(executor, name, None), int) and own > 0:
            return own
    client = getattr(executor, "_client", None)  # Dask's
    if client is not None and hasattr(client, "ncores") and (cores := sum(client.ncores().values())):
        return int(cores)
    return os.cpu_count() or 1


def worker_pool(spec: Spec, workers: int) -> ProcessPoolExecutor:
    """Worker processes that know the simulator."""
    # Imported where needed: together they would be a third of the time that `import brenier` takes.
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    # A forked worker inherits the simulator, so that closures and functions of a notebook work.
    kind = "fork" if "fork" in multiprocessing.get_all_start_methods() else None
    context = multiprocessing.get_context(kind)
    return ProcessPoolExecutor(workers, mp_context=context, initializer=adopt, initargs=(spec,))


def _kill(pool: ProcessPoolExecutor) -> None:
    """Ends the workers of a pool that is given up."""
    processes = list((getattr(pool, "_processes", None) or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.terminate()


class Evaluator:
    """A simulator for checks and ABC: blocks of (thetas, seeds) to outputs, in this process or on an executor."""

    def __init__(self, simulator: Callable[..., Any], parameters: list[str], outputs: list[str], executor: Where, vectorized: bool, as_array: bool, timeout: float | None) -> None:
        self.spec = Spec(simulator, parameters, outputs, vectorized, as_array, takes_seed(simulator), timeout, None)
        self.outputs = outputs
        self.own: ProcessPoolExecutor | None = None
        self.pool: Any = executor if not isinstance(executor, (str, int)) else None
        if isinstance(executor, (str, int)):
            workers = executor if isinstance(executor, int) else (os.cpu_count() or 1)
            self.own = worker_pool(self.spec, workers)
            self.own.submit(int).result()  # workers are forked here, before the threads of the call exist
            self.pool = self.own

    def __call__(self, thetas: Floats, seeds: Any) -> tuple[Floats, list[Any]]:
        if self.pool is None:
            rows = run_rows(self.spec, 0, thetas, seeds)
        elif self.own is not None:
            rows = self.own.submit(run_own, 0, thetas, seeds).result()
        else:
            rows = self.pool.submit(run_rows, self.spec, 0, thetas, seeds).result()
        states: list[Any] = [None] * len(thetas)
        for failure in rows.failures:
            states[failure.row] = False if failure.reason == "the simulator has no output here" else failure.reason
        values = rows.outputs
        if values.shape[1] != len(self.outputs):
            values = np.full((len(thetas), len(self.outputs)), np.nan)
            if len(rows.failures) < len(thetas):
                raise ShapeError(f"the simulator returned {rows.outputs.shape[1]} outputs, and {', '.join(self.outputs)} are needed")
        return np.ascontiguousarray(np.nan_to_num(values)), states

    def close(self) -> None:
        """Ends worker processes."""
        if self.own is not None:
            self.own.shutdown()


def core_simulator(
    simulator: Callable[..., Any] | str, prior: Prior | None, parameters: list[str], outputs: list[str],
    executor: Where, vectorized: bool, as_array: bool, timeout: float | None,
) -> tuple[_core.Simulator, Evaluator | None]:
    """The simulator of the core, and what must be closed after its use."""
    if isinstance(simulator, str):
        return _core.Simulator.built_in(simulator), None
    check_arguments(simulator, prior, executor, timeout)
    if prior is None:
        # Nothing is drawn from it: it only names the parameters.
        prior = Prior.of({name: {"kind": "uniform", "low": 0.0, "high": 1.0} for name in parameters})
    evaluator = Evaluator(simulator, prior.names, outputs, executor, vectorized, as_array, timeout)
    block = BLOCK_ROWS if vectorized else 16
    return _core.Simulator(prior._core, outputs, evaluator, block), evaluator
