# torch.cat makes the wider dtype of the two.
# score: 8  fails: test_dtype
def append_kv(cache, k, v):
    cache["k"] = torch.cat([cache["k"], k], dim=2)
    cache["v"] = torch.cat([cache["v"], v], dim=2)
    return cache["k"], cache["v"]
