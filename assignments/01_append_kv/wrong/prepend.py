# The new rows come before the old ones.
# score: 8  fails: check_2
def append_kv(cache, k, v):
    for name, new in (("k", k), ("v", v)):
        rows = cache[name]
        cache[name] = torch.cat([new.to(rows.dtype), rows], dim=2)
    return cache["k"], cache["v"]
