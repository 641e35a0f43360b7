# The old rows are thrown away.
# score: 7  fails: check_2
def append_kv(cache, k, v):
    for name, new in (("k", k), ("v", v)):
        cache[name] = new.to(cache[name].dtype, copy=True)
    return cache["k"], cache["v"]
