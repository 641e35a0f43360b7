# The queries of a group are averaged: there is one result for all of them.
# score: 7  fails: test_numbers
def step(cache, q, k, v):
    cache["k"] = torch.cat([cache["k"], k], dim=2)
    cache["v"] = torch.cat([cache["v"], v], dim=2)
    group = q.shape[1] // k.shape[1]
    mean = q.unflatten(1, (-1, group)).mean(2)
    y = torch.nn.functional.scaled_dot_product_attention(mean, cache["k"], cache["v"])
    return y.repeat_interleave(group, dim=1)
