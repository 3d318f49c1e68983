"""The zoo: records in a catalog (SQL), weights in a blob store (safetensors), and who may stay in it."""

from modelkeeper.extras import need

need("zoo", "a client or a zoo")
