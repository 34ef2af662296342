"""Makes the seeds of the targets `arrow` and `packed`: run it in this folder; needs pyarrow and the program zstd."""
import decimal
import gzip
import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc as ipc

arrow, packed = Path("seeds/arrow"), Path("seeds/packed")
arrow.mkdir(parents=True, exist_ok=True)
packed.mkdir(parents=True, exist_ok=True)


def write(name, columns, new=ipc.new_file, rows=2, **options):
    table = pa.table(columns)
    with new(arrow / name, table.schema, options=ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=rows)


write("file", {"a": pa.array([0.5, None, 2.5]), "b": pa.array([1, 2, 3], pa.int8()),
               "c": pa.array([True, None, False])})
write("stream", {"a": pa.array([1.5, 2.5], pa.float32()), "t": pa.array([1, 2], pa.timestamp("ms"))}, ipc.new_stream)
write("zstd", {"a": pa.array([1.0] * 40), "s": pa.array(["x", None] * 20)}, rows=40, compression="zstd")
write("lz4", {"a": pa.array([7] * 40, pa.int64()), "h": pa.array([0.5] * 40, pa.float16())}, rows=40, compression="lz4")
write("view", {"v": pa.array(["x", "a text longer than twelve bytes"], pa.string_view()),
               "d": pa.array([decimal.Decimal("1.25"), None], pa.decimal128(5, 2))})
write("nested", {"n": pa.array([{"a": 1, "b": [1, 2]}, None]), "x": pa.array([1.0, 2.0])})
# A dictionary that grows between two batches.
kinds = [pa.DictionaryArray.from_arrays(pa.array(at, pa.int8()), pa.array(words))
         for at, words in [([0, 1], ["u", "v"]), ([2, None], ["u", "v", "w"])]]
batches = [pa.record_batch({"k": kind}) for kind in kinds]
with ipc.new_stream(arrow / "delta", batches[0].schema,
                    options=ipc.IpcWriteOptions(emit_dictionary_deltas=True)) as writer:
    for batch in batches:
        writer.write_batch(batch)


def gz(text):
    return gzip.compress(text, mtime=0)


def zst(text):
    return subprocess.run(["zstd", "-19", "-c"], input=text, stdout=subprocess.PIPE, check=True).stdout


rows = b"a,b\n" + b"".join(b"%d,0.%d\n" % (i, i) for i in range(20))
for name, pack in [("gz", gz), ("zst", zst)]:
    (packed / name).write_bytes(pack(rows))
    (packed / f"{name}-members").write_bytes(pack(b"a b\n1 2\n") + pack(b"3 4\n"))
    # Small relatives of a decompression bomb: one long field, many fields, many rows.
    (packed / f"{name}-long").write_bytes(pack(b"a,b\n1,2\n" + b"1" * 300_000))
    (packed / f"{name}-wide").write_bytes(pack(b"a,b\n1,2\n" + b"," * 300_000))
    (packed / f"{name}-rows").write_bytes(pack(b"a\n" + b"1\n" * 100_000))
