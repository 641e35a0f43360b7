# The rows are repeated for all query heads, and so they are stored.
# score: 7  fails: test_narrow
def step(cache, q, k, v):
    group = q.shape[1] // k.shape[1]
    for name, new in (("k", k), ("v", v)):
        new = new.repeat_interleave(group, dim=1)
        empty = cache[name].shape[2] == 0
        cache[name] = new if empty else torch.cat([cache[name], new], dim=2)
    return torch.nn.functional.scaled_dot_product_attention(q, cache["k"], cache["v"])
