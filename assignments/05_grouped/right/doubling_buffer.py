# A buffer beside the cache's K and V has room for more rows, and doubles when it is full.
def step(cache, q, k, v):
    for name, new in (("k", k), ("v", v)):
        old, held = cache[name], cache[name].shape[2]
        room = cache.get(name + "_room")
        if room is None or room.shape[2] <= held:
            b, h, _, d = old.shape
            room = torch.empty(b, h, 2 * held + 4, d)
            room[:, :, :held] = old
        room[:, :, held : held + 1] = new
        cache[name + "_room"], cache[name] = room, room[:, :, : held + 1]
    cache["length"] = cache["k"].shape[2]
    group = q.shape[1] // k.shape[1]
    K, V = (cache[name].repeat_interleave(group, dim=1) for name in "kv")
    return torch.nn.functional.scaled_dot_product_attention(q, K, V)
