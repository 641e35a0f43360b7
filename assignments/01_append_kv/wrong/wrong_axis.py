# The heads grow, not the tokens.
# score: 5  fails: check_2
def append_kv(cache, k, v):
    for name, new in (("k", k), ("v", v)):
        rows = cache[name]
        empty = rows.shape[2] == 0
        cache[name] = new.to(rows.dtype).clone() if empty else torch.cat([rows, new], dim=1)
    return cache["k"], cache["v"]
