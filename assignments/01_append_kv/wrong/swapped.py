# Keys go to V and values to K.
# score: 5  fails: test_apart
def append_kv(cache, k, v):
    for name, new in (("v", k), ("k", v)):
        rows = cache[name]
        cache[name] = torch.cat([rows, new.to(rows.dtype)], dim=2)
    return cache["k"], cache["v"]
