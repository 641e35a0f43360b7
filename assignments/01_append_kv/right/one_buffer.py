# Room for old and new rows is made first, and then filled.
def append_kv(cache, k, v):
    for name, new in zip("kv", (k, v), strict=True):
        old, n = cache[name], new.shape[2]
        b, h, held, d = old.shape
        room = old.new_empty(b, h, held + n, d)
        room[:, :, :held], room[:, :, held:] = old, new
        cache[name] = room
    return cache["k"], cache["v"]
